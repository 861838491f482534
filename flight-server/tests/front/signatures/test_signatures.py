# SPDX-License-Identifier: Apache-2.0
"""Parts of a session function that a signature covers, and the period in which it is valid."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from signing import COMMAND_SHA256, DAY_MILLISECONDS, Driver, write_signers

from updraft.errors import FunctionRefusedError
from updraft.v1.exchange_pb2 import Artifact, ExchangeCommand, Owner, SessionFunction, Statement, TaskIdentity
from updraft_server.front.request.request import Request
from updraft_server.front.signatures.signatures import Signatures
from updraft_server.pool.leases import Owner as PoolOwner

SCHEMA = b"header of a schema"
PAYLOAD = b"a pickle"
OWNER = PoolOwner("team-a", "app-1", "session-1")
DIGEST = bytes(range(32))

Change = Callable[[ExchangeCommand], object]


def command() -> ExchangeCommand:
    return ExchangeCommand(
        protocol_version=1,
        session=SessionFunction(
            python_version="3.11",
            spark_version="4.3.0",
            eval_type=200,
            environment={"TZ": "UTC"},
            user_environment={"MODEL": "large"},
            artifacts=[Artifact(sha256=DIGEST, size_bytes=7, file_name="code.py")],
            python_includes=["code.py"],
        ),
        task=TaskIdentity(
            owner=Owner(application_id=OWNER.application_id, session_id=OWNER.session_id), partition_id=3
        ),
        payload=PAYLOAD,
    )


def request(signed: ExchangeCommand, schema: bytes = SCHEMA) -> Request:
    return Request(function="session", command=signed, version="", payload=signed.payload, schema=schema)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def signatures(tmp_path: Path, driver: Driver) -> Signatures:
    return Signatures(**write_signers(tmp_path / "signers", [driver]), required=True)


def check(signatures: Signatures, signed: ExchangeCommand, owner: PoolOwner = OWNER, schema: bytes = SCHEMA) -> str:
    checked = signatures.check(request(signed, schema), owner)
    checked.settle(fits=checked.fits(signed.payload))
    checked.check_again()
    return checked.signed_by.signer if checked.signed_by is not None else ""


def test_what_a_known_driver_has_signed_runs(signatures: Signatures, driver: Driver) -> None:
    assert check(signatures, driver.signed(command(), SCHEMA)) == "a-driver"
    assert signatures.outcomes == {"valid": 1, "unsigned": 0, "refused": 0}


def test_another_attempt_or_partition_needs_no_other_signature(signatures: Signatures, driver: Driver) -> None:
    signed = driver.signed(command(), SCHEMA)
    for attempt in range(3):
        signed.task.attempt_number, signed.task.partition_id = attempt, attempt
        assert check(signatures, signed) == "a-driver"


ALTERED: dict[str, Change] = {
    "payload": lambda sent: setattr(sent, "payload", b"another pickle"),
    "eval_type": lambda sent: setattr(sent.session, "eval_type", 205),
    "environment": lambda sent: sent.session.environment.update(TZ="CET"),
    "user_environment": lambda sent: sent.session.user_environment.update(MODEL="small"),
    "one more variable": lambda sent: sent.session.user_environment.update(MORE="x"),
    "artifact": lambda sent: setattr(sent.session.artifacts[0], "sha256", bytes(32)),
    "name of an artifact": lambda sent: setattr(sent.session.artifacts[0], "file_name", "other.py"),
    "role of an artifact": lambda sent: setattr(sent.session.artifacts[0], "broadcast_id", 1),
    "one more artifact": lambda sent: sent.session.artifacts.add(sha256=DIGEST, size_bytes=7, file_name="more.py"),
    "no artifact": lambda sent: sent.session.ClearField("artifacts"),
    "includes": lambda sent: sent.session.python_includes.append("more.py"),
    "python": lambda sent: setattr(sent.session, "python_version", "3.12"),
    "spark": lambda sent: setattr(sent.session, "spark_version", "4.2.0"),
}


@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED)
def test_what_was_altered_is_refused(signatures: Signatures, driver: Driver, change: Change) -> None:
    signed = driver.signed(command(), SCHEMA)
    change(signed)
    with pytest.raises(FunctionRefusedError, match="of 'a-driver' is not for this exchange"):
        check(signatures, signed)
    assert signatures.outcomes == {"valid": 0, "unsigned": 0, "refused": 1}


def test_another_schema_is_refused(signatures: Signatures, driver: Driver) -> None:
    with pytest.raises(FunctionRefusedError, match="the schema of the arguments differs"):
        check(signatures, driver.signed(command(), SCHEMA), schema=b"header of another")


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        (PoolOwner("team-a", "app-2", "session-1"), "for the application 'app-1', but the exchange is of 'app-2'"),
        (PoolOwner("team-a", "app-1", "session-2"), "for the session 'session-1', but the exchange is of 'session-2'"),
        (PoolOwner("team-a", "app-1", ""), "for the session"),
    ],
    ids=["application", "session", "no session"],
)
def test_a_signature_is_of_no_use_elsewhere(
    signatures: Signatures, driver: Driver, owner: PoolOwner, says: str
) -> None:
    with pytest.raises(FunctionRefusedError, match=says):
        check(signatures, driver.signed(command(), SCHEMA), owner)


def test_a_statement_for_a_tenant_is_for_no_other(signatures: Signatures, driver: Driver) -> None:
    named = command()
    named.task.owner.tenant = "team-a"
    signed = driver.signed(named, SCHEMA)
    assert check(signatures, signed) == "a-driver"
    with pytest.raises(FunctionRefusedError, match="for the tenant 'team-a', but the exchange is of 'team-b'"):
        check(signatures, signed, PoolOwner("team-b", "app-1", "session-1"))


def test_a_signer_signs_for_its_tenants(tmp_path: Path, driver: Driver) -> None:
    signatures = Signatures(**write_signers(tmp_path / "signers", [driver], tenants=["team-b"]), required=True)
    with pytest.raises(FunctionRefusedError, match="the tenant 'team-a', for which this key may not sign"):
        check(signatures, driver.signed(command(), SCHEMA))


def timed(driver: Driver, issued_days: float, expires_days: float) -> ExchangeCommand:
    """Return a command signed with a statement that is valid between these offsets from now."""
    sent = command()
    statement = driver.statement(sent, SCHEMA)
    now = time.time() * 1000
    statement.issued_at_milliseconds = int(now + issued_days * DAY_MILLISECONDS)
    statement.expires_at_milliseconds = int(now + expires_days * DAY_MILLISECONDS)
    sent.signed_statement.CopyFrom(driver.sign(statement))
    return sent


@pytest.mark.parametrize(
    ("issued_days", "expires_days", "says"),
    [
        (-7, -0.001, "expired 86 seconds ago"),
        (0.001, 6, "issued 86 seconds in the future"),
        (0, 7.1, "its signer may sign for at most 604800"),
        (-4, 3.1, "its signer may sign for at most 604800"),
    ],
)
def test_a_signature_holds_for_a_while(
    signatures: Signatures, driver: Driver, issued_days: float, expires_days: float, says: str
) -> None:
    with pytest.raises(FunctionRefusedError, match=says):
        check(signatures, timed(driver, issued_days, expires_days))


def test_clocks_may_differ_a_little(signatures: Signatures, driver: Driver) -> None:
    for issued_days, expires_days in ((0.0002, 6), (-6, -0.0002)):
        assert check(signatures, timed(driver, issued_days, expires_days)) == "a-driver"


def test_a_key_that_is_not_known_is_refused(signatures: Signatures) -> None:
    with pytest.raises(FunctionRefusedError, match="does not know the key"):
        check(signatures, Driver().signed(command(), SCHEMA))


def test_a_signature_under_the_name_of_another_key_is_refused(signatures: Signatures, driver: Driver) -> None:
    signed = Driver().signed(command(), SCHEMA)
    signed.signed_statement.key_sha256 = driver.sign(b"").key_sha256
    with pytest.raises(FunctionRefusedError, match="the statement was changed on its way"):
        check(signatures, signed)


@pytest.mark.parametrize("field", ["statement", "signature"])
def test_a_changed_byte_is_refused(signatures: Signatures, driver: Driver, field: str) -> None:
    signed = driver.signed(command(), SCHEMA)
    content = bytearray(getattr(signed.signed_statement, field))
    content[5] ^= 1
    setattr(signed.signed_statement, field, bytes(content))
    with pytest.raises(FunctionRefusedError, match="the statement was changed on its way"):
        check(signatures, signed)


@pytest.mark.parametrize("statement", [b"", b"\xff\xff", Statement().SerializeToString()])
def test_a_signed_statement_that_says_nothing_is_refused(
    signatures: Signatures, driver: Driver, statement: bytes
) -> None:
    sent = command()
    sent.signed_statement.CopyFrom(driver.sign(statement))
    with pytest.raises(FunctionRefusedError):
        check(signatures, sent)


def test_what_nobody_signed_is_refused_and_told_what_to_do(signatures: Signatures) -> None:
    with pytest.raises(FunctionRefusedError, match=r"spark\.updraft\.udf\.signingKeyFile"):
        check(signatures, command())


def test_a_key_is_revoked_while_the_pool_serves(tmp_path: Path, signatures: Signatures, driver: Driver) -> None:
    other = Driver("another-driver")
    write_signers(tmp_path / "signers", [other])
    with pytest.raises(FunctionRefusedError, match="does not know the key"):
        check(signatures, driver.signed(command(), SCHEMA))
    assert check(signatures, other.signed(command(), SCHEMA)) == "another-driver"


def test_a_function_is_revoked_while_the_pool_serves(tmp_path: Path, signatures: Signatures, driver: Driver) -> None:
    write_signers(tmp_path / "signers", [driver], revoked=[f"sha256:{COMMAND_SHA256.hex()}"])
    with pytest.raises(FunctionRefusedError, match="a function was revoked on this pool: sha256:"):
        check(signatures, driver.signed(command(), SCHEMA))


def test_without_signers_no_signature_counts(tmp_path: Path, signatures: Signatures, driver: Driver) -> None:
    write_signers(tmp_path / "signers", [])
    with pytest.raises(FunctionRefusedError, match="does not know the key"):
        check(signatures, driver.signed(command(), SCHEMA))


def test_on_the_way_to_signatures_what_is_unsigned_is_counted(tmp_path: Path, driver: Driver) -> None:
    signatures = Signatures(**write_signers(tmp_path / "signers", [driver]), required=False)
    assert check(signatures, command()) == ""
    assert check(signatures, driver.signed(command(), SCHEMA)) == "a-driver"
    with pytest.raises(FunctionRefusedError, match="does not know the key"):
        check(signatures, Driver().signed(command(), SCHEMA))
    assert signatures.outcomes == {"valid": 1, "unsigned": 1, "refused": 1}


def test_a_pool_that_does_not_ask_looks_at_no_signature() -> None:
    signatures = Signatures(None, required=False)
    assert check(signatures, Driver().signed(command(), SCHEMA)) == ""
    assert signatures.outcomes["unsigned"] == 1
