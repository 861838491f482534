# SPDX-License-Identifier: Apache-2.0
"""Audit records of exchanges and refusals, and requests that a front refuses while it cannot write them."""

import asyncio
import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_pool import FakePool
from flight_messages import all_replies, batch, command_request, echo_command, finish
from front_harness import Running, RunningFront
from signing import Driver, write_signers

from updraft.v1.exchange_pb2 import ExchangeCommand, Owner, RegisteredFunction, SessionFunction, TaskIdentity

SESSION = SessionFunction(python_version="3.11", spark_version="4.3.0", eval_type=200)
OWNER = Owner(tenant="a", application_id="app\n{}", session_id="s")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit"


@pytest.fixture
def settings(tmp_path: Path, log: Path) -> dict[str, Any]:
    identities = tmp_path / "identities.toml"
    digest = hashlib.sha256(b"token").hexdigest()
    identities.write_text(
        f'[[identity]]\nname = "driver"\ntenant = "a"\nscopes = ["call", "session"]\ntoken_sha256 = ["{digest}"]\n'
    )
    return {"audit_file": log, "identities_file": identities, "session_functions": "unsigned"}


async def served(front: RunningFront, command: ExchangeCommand, token: str = "token", *, whole: bool = True) -> Any:
    """Run an exchange and return its error, or None."""
    call = front.exchange(metadata=(("authorization", f"Bearer {token}"),))
    # A client that fails authentication may learn of it before it sends anything.
    with contextlib.suppress(grpc.aio.AioRpcError):
        for message in (command_request(command), *((batch(1), finish(1)) if whole else ())):
            await call.write(message)
        if whole:
            await call.done_writing()
    return (await all_replies(call))[1]


def lost(front: RunningFront) -> float | None:
    return front.front.metrics.registry.get_sample_value("updraft_audit_records_total", {"outcome": "lost"})


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


async def records(log: Path, count: int) -> list[dict[str, Any]]:
    """Wait for this many records and return them; the front writes the last ones after the end of a call."""
    for _ in range(6000):
        lines = await asyncio.to_thread(_lines, log)
        if len(lines) >= count:
            return [json.loads(line) for line in lines]
        await asyncio.sleep(0.01)
    pytest.fail(f"{len(lines)} of {count} records")


async def test_an_exchange_is_recorded_before_it_begins_and_at_its_end(
    running_front: Running, settings: dict[str, Any], log: Path
) -> None:
    async with running_front(FakePool(), **settings) as front:
        command = echo_command(task=TaskIdentity(owner=OWNER))
        assert await served(front, command) is None
        opened, ended = await records(log, 2)
    assert (opened["event"], ended["event"]) == ("opened", "ended")
    assert opened["id"] == ended["id"]
    assert opened["peer"].startswith("ipv4:127.0.0.1:")
    whole = {"identity": "driver", "tenant": "a", "application": "app\n{}", "function": "echo", "session": "s"}
    assert whole.items() <= opened.items()
    assert ended["outcome"] == "ok"
    assert opened["time"] < ended["time"]


async def test_a_session_function_is_recorded_by_its_digest(
    running_front: Running, settings: dict[str, Any], log: Path
) -> None:
    async with running_front(FakePool(), **settings) as front:
        command = echo_command(session=SESSION, task=TaskIdentity(owner=OWNER), payload=b"pickled")
        assert await served(front, command) is None
        opened, _ = await records(log, 2)
    assert opened["digest"] == "sha256:" + hashlib.sha256(b"pickled").hexdigest()
    assert opened["eval_type"] == 200


async def test_what_is_refused_is_recorded(running_front: Running, settings: dict[str, Any], log: Path) -> None:
    async with running_front(FakePool(), **settings) as front:
        foreign = echo_command(task=TaskIdentity(owner=Owner(tenant="b", application_id="app")))
        for command, token in ((foreign, "token"), (echo_command(), "stolen")):
            assert await served(front, command, token, whole=False) is not None
        refused, unknown = await records(log, 2)
    assert (refused["event"], refused["identity"], refused["outcome"]) == ("refused", "driver", "PermissionDeniedError")
    assert "cannot act for 'b'" in refused["reason"]
    assert (unknown["event"], unknown["outcome"]) == ("refused", "UnauthenticatedError")
    assert "identity" not in unknown
    assert "stolen" not in json.dumps(unknown)


async def test_who_hangs_up_over_an_error_is_recorded_with_the_error(
    running_front: Running, settings: dict[str, Any], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_sent = asyncio.Event()

    async def sent(*_: object) -> None:
        is_sent.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("updraft_server.front.exchange._send_error", sent)
    async with running_front(FakePool(), **settings) as front:
        call = front.exchange(metadata=(("authorization", "Bearer token"),))
        await call.write(command_request(echo_command(registered=RegisteredFunction(name="unknown"))))
        async with asyncio.timeout(60):
            await is_sent.wait()
        call.cancel()
        (refused,) = await records(log, 1)
    assert refused["outcome"] == "FunctionNotFoundError"
    assert "unknown" in refused["reason"]


@pytest.mark.parametrize("method", ["ListFlights", "GetFlightInfo", "ListActions"])
async def test_who_tries_credentials_by_a_question_is_recorded(
    running_front: Running, settings: dict[str, Any], log: Path, method: str
) -> None:
    async with running_front(FakePool(), **settings) as front:
        ask = front.channel.unary_stream(f"/arrow.flight.protocol.FlightService/{method}")
        for token in ("stolen", "token"):
            with contextlib.suppress(grpc.aio.AioRpcError):
                _ = [answer async for answer in ask(b"", metadata=(("authorization", f"Bearer {token}"),), timeout=60)]
        assert await served(front, echo_command()) is None
        refused, opened, _ended = await records(log, 3)
    assert (refused["event"], refused["call"]) == ("refused", "question")
    assert (refused["outcome"], opened["event"]) == ("UnauthenticatedError", "opened")


async def test_a_refused_function_is_recorded_with_whom_it_was_said_to_be_for(
    running_front: Running, settings: dict[str, Any], log: Path, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("anybody's\n")
    signed = {"session_functions": "signed", **write_signers(tmp_path / "signers", [Driver()])}
    async with running_front(FakePool(), **{**settings, "token_file": tokens, **signed}) as front:
        command = echo_command(session=SESSION, task=TaskIdentity(owner=OWNER))
        assert await served(front, command, "anybody's", whole=False) is not None
        (refused,) = await records(log, 1)
    assert (refused["event"], refused["outcome"]) == ("refused", "FunctionRefusedError")
    assert (refused["tenant"], refused["session"], refused["application"]) == ("a", "s", "app\n{}")


async def test_strangers_do_not_fill_the_log(
    running_front: Running, settings: dict[str, Any], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Even on a slow machine, 60 calls take less than a minute.
    monkeypatch.setattr("updraft.service.audit._STRANGERS_A_SECOND", 1)
    async with running_front(FakePool(), **settings) as front:
        for _ in range(60):
            await served(front, echo_command(), "stolen", whole=False)
        await asyncio.sleep(1.1)
        await served(front, echo_command(), "stolen", whole=False)
        assert await served(front, echo_command()) is None
        found = await records(log, 2)
        while sum(record["event"] == "ended" for record in found) < 1:
            found = await records(log, len(found) + 1)
    strangers = [record for record in found if record["event"] == "refused"]
    assert len(strangers) < 60
    assert sum(record.get("unrecorded_before", 0) for record in strangers) + len(strangers) == 61


async def test_nothing_runs_that_cannot_be_recorded(
    running_front: Running, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.audit._WRITE_TIMEOUT_SECONDS", 1.0)
    pool = FakePool()
    async with running_front(pool, **{**settings, "audit_file": Path("/dev/full")}) as front:
        for _ in range(2):
            error = await served(front, echo_command(), whole=False)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert "this pool refuses work that it cannot record" in error.details()
            assert "No space left on device" in error.details()
        assert front.front.metrics.registry.get_sample_value("updraft_audit_failing") == 1
    assert not pool.leases


async def test_work_goes_on_where_the_operator_has_chosen_that(
    running_front: Running, settings: dict[str, Any]
) -> None:
    count = {**settings, "audit_file": Path("/dev/full"), "audit_failure": "count"}
    async with running_front(FakePool(), **count) as front:
        assert await served(front, echo_command()) is None
        for _ in range(6000):
            if lost(front) == 2:
                break
            await asyncio.sleep(0.01)
        assert lost(front) == 2


async def test_who_may_not_drain_is_recorded_and_who_only_asks_is_not(
    running_front: Running, settings: dict[str, Any], log: Path
) -> None:
    from pyarrow import flight

    def ask(address: str) -> None:
        with flight.connect(f"grpc://{address}") as client:
            options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer token")])
            assert list(client.do_action("updraft.pool_status", options))
            with pytest.raises(flight.FlightUnauthorizedError):
                list(client.do_action("updraft.drain", options))

    async with running_front(FakePool(), **settings) as front:
        await asyncio.to_thread(ask, front.address)
        (refused,) = await records(log, 1)
    described = {"call": "action", "action": "updraft.drain", "event": "refused", "identity": "driver"}
    assert described.items() <= refused.items()


@pytest.mark.parametrize(
    ("token", "outcome", "says"),
    [
        ("caller", "PermissionDeniedError", "it needs the scope session, but has call"),
        ("token", "FunctionRefusedError", "this pool does not know the key that signed the function"),
    ],
    ids=["without the scope", "with an unknown key"],
)
async def test_whose_signature_is_refused_is_recorded(
    running_front: Running,
    settings: dict[str, Any],
    log: Path,
    tmp_path: Path,
    token: str,
    outcome: str,
    says: str,
) -> None:
    from pyarrow import flight

    digest = hashlib.sha256(b"caller").hexdigest()
    with settings["identities_file"].open("a") as identities:
        identities.write(f'[[identity]]\nname = "c"\ntenant = "a"\nscopes = ["call"]\ntoken_sha256 = ["{digest}"]\n')
    known, stranger = Driver(), Driver("stranger")

    def ask(address: str) -> None:
        with flight.connect(f"grpc://{address}") as client:
            for driver, bearer in ((known, "token"), (stranger, token)):
                options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {bearer}".encode())])
                signed = driver.sign(driver.statement(echo_command(session=SESSION), b"")).SerializeToString()
                asked = flight.Action("updraft.check_signature", signed)
                if driver is known:
                    assert list(client.do_action(asked, options))
                    continue
                with pytest.raises(flight.FlightUnauthorizedError, match=says):
                    list(client.do_action(asked, options))

    signed = {"session_functions": "signed", **write_signers(tmp_path / "signers", [known])}
    async with running_front(FakePool(), **{**settings, **signed}) as front:
        await asyncio.to_thread(ask, front.address)
        (refused,) = await records(log, 1)
    described = {"call": "action", "action": "updraft.check_signature", "event": "refused", "outcome": outcome}
    assert described.items() <= refused.items()
    assert says in refused["reason"]


async def test_who_drains_is_recorded(running_front: Running, settings: dict[str, Any], log: Path) -> None:
    from pyarrow import flight

    def drain(address: str) -> None:
        with flight.connect(f"grpc://{address}") as client:
            options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer token")])
            list(client.do_action("updraft.drain", options))

    async with running_front(FakePool(), **settings, allow_remote_drain=True) as front:
        await asyncio.to_thread(drain, front.address)
        opened, ended = await records(log, 2)
    assert (opened["event"], ended["event"], ended["outcome"]) == ("opened", "ended", "ok")
    assert opened["action"] == ended["action"] == "updraft.drain"
