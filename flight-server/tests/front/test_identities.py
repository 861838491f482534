# SPDX-License-Identifier: Apache-2.0
"""Authorization of identities at a front: which calls each scope allows, and only for the identity's own tenant."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pyarrow.flight as flight
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from fake_pool import FakePool
from flight_messages import all_replies, batch, command_request, echo_command, finish, reply_metadata
from front_calls import Gate, admitted, in_a_thread, until
from front_harness import Running, RunningFront
from signing import Driver, write_signers

from updraft.protocol import TENANT_HEADER
from updraft.v1.exchange_pb2 import ErrorKind, ExchangeCommand, Owner, SessionFunction, TaskIdentity

SCOPES = ("call", "session", "write", "admin")
SPIFFE = "spiffe://example.org/ns/a/sa"
SESSION = SessionFunction(python_version="3.11", spark_version="4.3.0")


def session(tenant: str = "") -> ExchangeCommand:
    owner = Owner(tenant=tenant, application_id="app")
    return echo_command(session=SESSION, task=TaskIdentity(owner=owner, stage_id=2, task_attempt_id=4))


EXCHANGES = {"call": echo_command(), "session": session()}


@pytest.fixture
def identities(tmp_path: Path) -> Path:
    """Return a file with one identity of tenant a for each scope; its token is the scope's name."""
    path = tmp_path / "identities.toml"
    path.write_text(
        "".join(
            f'[[identity]]\nname = "{scope}-of-a"\ntenant = "a"\nscopes = ["{scope}"]\n'
            f'token_sha256 = ["{hashlib.sha256(scope.encode()).hexdigest()}"]\n'
            f'certificates = ["{scope}.a", "{SPIFFE}/{scope}"]\n'
            for scope in SCOPES
        )
    )
    return path


async def outcome(
    front: RunningFront, command: ExchangeCommand, token: str, *headers: tuple[str, str], allowed: bool = False
) -> tuple[grpc.StatusCode, ErrorKind | None, str]:
    """Return the status of an exchange, and the kind and message of its in-band error.

    An exchange that is not allowed sends its command alone: a client that goes on writing may learn of the end before
    the reason.
    """
    call = front.exchange(metadata=(("authorization", f"Bearer {token}"), *headers))
    return await ended(call, command, allowed=allowed)


async def ended(call: Any, command: ExchangeCommand, *, allowed: bool) -> tuple[grpc.StatusCode, ErrorKind | None, str]:
    """Run an exchange on an open call and return the same as `outcome`."""
    for message in (command_request(command), *((batch(1), finish(1)) if allowed else ())):
        await call.write(message)
    if allowed:
        await call.done_writing()
    replies, error = await all_replies(call)
    if error is None:
        return grpc.StatusCode.OK, None, ""
    told = reply_metadata(replies[-1]).error if replies else None
    return error.code(), told.kind if told is not None else None, str(error.details())


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("wanted", EXCHANGES)
async def test_an_exchange_takes_its_scope(running_front: Running, identities: Path, wanted: str, scope: str) -> None:
    pool = FakePool()
    async with running_front(pool, identities_file=identities, session_functions="unsigned") as front:
        code, kind, says = await outcome(front, EXCHANGES[wanted], scope, allowed=wanted == scope)
    if wanted == scope:
        assert code is grpc.StatusCode.OK
    else:
        assert (code, kind) == (grpc.StatusCode.PERMISSION_DENIED, ErrorKind.ERROR_KIND_PERMISSION_DENIED)
        assert f"the identity '{scope}-of-a' may not" in says
        assert f"it needs the scope {wanted}, but has {scope}" in says
    assert len(pool.leases) == (wanted == scope)


async def test_whoever_is_unknown_learns_nothing(running_front: Running, identities: Path) -> None:
    async with running_front(FakePool(), identities_file=identities) as front:
        for token in ("", "other", hashlib.sha256(b"call").hexdigest()):
            call = front.exchange(metadata=(("authorization", f"Bearer {token}"),))
            _, error = await all_replies(call)
            assert error is not None
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "of-a" not in str(error.details())
            assert await admitted(front.channel, f"Bearer {token}") is grpc.StatusCode.UNAUTHENTICATED
        assert await admitted(front.channel, "Bearer write") is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("command", "headers"),
    [
        (session(), [(TENANT_HEADER, "b")]),
        (session("b"), []),
        (session("b"), [(TENANT_HEADER, "a")]),
        (session("a"), [(TENANT_HEADER, "b")]),
    ],
    ids=["header", "owner", "owner behind a header", "header before an owner"],
)
async def test_nobody_acts_for_another_tenant(
    running_front: Running, identities: Path, command: ExchangeCommand, headers: Sequence[tuple[str, str]]
) -> None:
    pool = FakePool()
    async with running_front(pool, identities_file=identities, session_functions="unsigned") as front:
        code, kind, says = await outcome(front, command, "session", *headers)
    assert (code, kind) == (grpc.StatusCode.PERMISSION_DENIED, ErrorKind.ERROR_KIND_PERMISSION_DENIED)
    assert "is of the tenant 'a' and cannot act for 'b'" in says
    assert pool.leases == []


@pytest.mark.parametrize("headers", [[], [(TENANT_HEADER, "a")]])
async def test_its_own_tenant_is_that_of_the_owner(
    running_front: Running, identities: Path, headers: Sequence[tuple[str, str]]
) -> None:
    pool = FakePool()
    async with running_front(pool, identities_file=identities, session_functions="unsigned") as front:
        assert (await outcome(front, session(), "session", *headers, allowed=True))[0] is grpc.StatusCode.OK
    [lease] = pool.leases
    assert lease.binding.owner is not None
    assert (lease.binding.owner.tenant, lease.binding.owner.application_id) == ("a", "app")


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("action", ["updraft.drain", "updraft.worker_stack"])
async def test_only_an_administrator_drains_and_reads_stacks(
    running_front: Running, identities: Path, action: str, scope: str
) -> None:
    def ask(location: str) -> Any:
        with flight.connect(location) as client:
            options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {scope}".encode())])
            listed = {each.type for each in client.list_actions(options)}
            try:
                return listed, list(client.do_action(action, options))
            except flight.FlightUnauthorizedError:
                return listed, None

    async with running_front(FakePool(), identities_file=identities) as front:
        listed, answer = await in_a_thread(ask, f"grpc://{front.address}")
        assert (action in listed, answer is not None) == (scope == "admin", scope == "admin")
        if scope == "admin" and action == "updraft.drain":
            await front.stopped()


@pytest.mark.parametrize("scope", SCOPES)
async def test_only_who_ships_functions_has_a_signature_checked(
    running_front: Running, identities: Path, tmp_path: Path, scope: str
) -> None:
    driver = Driver()
    signed = driver.sign(driver.statement(session(), b"")).SerializeToString()

    def ask(location: str) -> str:
        with flight.connect(location) as client:
            options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {scope}".encode())])
            try:
                (answer,) = client.do_action(flight.Action("updraft.check_signature", signed), options)
            except flight.FlightUnauthorizedError as error:
                return str(error)
            return str(answer.body.to_pybytes().decode())

    signers = write_signers(tmp_path / "signers", [driver])
    async with running_front(FakePool(), identities_file=identities, session_functions="signed", **signers) as front:
        answer = await in_a_thread(ask, f"grpc://{front.address}")
    refusal = f"it needs the scope session, but has {scope}"
    assert ('{"signer": "a-driver"}' if scope == "session" else refusal) in answer


@pytest.mark.parametrize(
    ("revocation", "code", "kind"),
    [
        ("token", grpc.StatusCode.UNAUTHENTICATED, ErrorKind.ERROR_KIND_UNAUTHENTICATED),
        ("file", grpc.StatusCode.UNAUTHENTICATED, ErrorKind.ERROR_KIND_UNAUTHENTICATED),
        ("scope", grpc.StatusCode.PERMISSION_DENIED, ErrorKind.ERROR_KIND_PERMISSION_DENIED),
        ("tenant", grpc.StatusCode.PERMISSION_DENIED, ErrorKind.ERROR_KIND_PERMISSION_DENIED),
        ("", grpc.StatusCode.OK, None),
    ],
)
async def test_who_is_revoked_while_an_exchange_waits_gets_no_worker(
    running_front: Running,
    identities: Path,
    monkeypatch: pytest.MonkeyPatch,
    revocation: str,
    code: grpc.StatusCode,
    kind: ErrorKind | None,
) -> None:
    gate = Gate()
    pool = FakePool(workers=1, script=gate.script)
    credentials = (("authorization", "Bearer session"),)
    settings: dict[str, Any] = {"identities_file": identities, "session_functions": "unsigned"}
    async with running_front(pool, **settings) as front:
        running, waiting = (front.exchange(metadata=credentials) for _ in range(2))
        await running.write(command_request(session()))
        await running.read()
        another_task = session()
        another_task.task.task_attempt_id += 1
        await waiting.write(command_request(another_task))
        await until(lambda: front.front.admission.waiting == 1)
        revoke(identities, revocation, monkeypatch)
        gate.opened.set()
        # Running exchanges continue.
        await running.write(finish(0))
        await running.done_writing()
        assert (await all_replies(running))[1] is None
        if code is grpc.StatusCode.OK:
            await waiting.write(finish(0))
            await waiting.done_writing()
        replies, error = await all_replies(waiting)
        await until(lambda: pool.idle == 1)
    assert (error.code() if error is not None else grpc.StatusCode.OK) is code
    assert (reply_metadata(replies[-1]).error.kind if error is not None else None) == kind


def revoke(identities: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove something from the identity with the scope `session`."""
    named = identities.read_text()
    digest = hashlib.sha256(b"session").hexdigest()
    if what == "token":
        identities.write_text(named.replace(digest, hashlib.sha256(b"another").hexdigest()))
    elif what == "file":
        monkeypatch.setattr("updraft.service.security._GRACE_SECONDS", -1.0)
        identities.unlink()
    elif what == "scope":
        identities.write_text(named.replace('scopes = ["session"]', 'scopes = ["call"]'))
    elif what == "tenant":
        identities.write_text(named.replace('name = "session-of-a"\ntenant = "a"', 'name = "moved"\ntenant = "b"'))


@pytest.mark.parametrize(
    ("name", "uri", "code"),
    [
        ("session.a", "", "OK"),
        ("call.a", "", "PERMISSION_DENIED"),
        ("anybody", f"{SPIFFE}/session", "OK"),
        ("anybody", f"{SPIFFE}/call", "PERMISSION_DENIED"),
        ("anybody", f"{SPIFFE}/stranger", "UNAUTHENTICATED"),
        # An id counts only in its own field of the certificate.
        (f"{SPIFFE}/session", "", "UNAUTHENTICATED"),
    ],
)
async def test_a_client_certificate_is_an_identity(
    running_front: Running, tmp_path: Path, identities: Path, name: str, uri: str, code: str
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    served = authority.issue_cert("localhost")
    served.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    served.private_key_pem.write_to_path(tmp_path / "tls.key")
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes(), *key_and_certificate(authority, name, uri))
    files = {"tls_certificate_file": "tls.crt", "tls_key_file": "tls.key", "tls_client_ca_file": "ca.crt"}
    settings: dict[str, Any] = {setting: tmp_path / file for setting, file in files.items()}
    async with running_front(FakePool(), identities_file=identities, session_functions="unsigned", **settings) as front:
        address = f"localhost:{front.address.rpartition(':')[2]}"
        async with grpc.aio.secure_channel(address, credentials) as channel:
            front.channel = channel
            if code == "UNAUTHENTICATED":
                assert (await admitted(channel)).name == code
                return
            found, _, _ = await ended(front.exchange(), session(), allowed=code == "OK")
            assert found.name == code


def key_and_certificate(authority: trustme.CA, name: str, uri: str) -> tuple[bytes, bytes]:
    """Return a client's key and certificate in PEM, with this common name and this URI as an alternative name."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(signer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    if uri:
        alternative = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
        builder = builder.add_extension(alternative, critical=False)
    private: Any = load_pem_private_key(authority.private_key_pem.bytes(), password=None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem, builder.sign(private, hashes.SHA256()).public_bytes(Encoding.PEM)
