# SPDX-License-Identifier: Apache-2.0
"""Front that requires signatures: unsigned functions do not reach a worker."""

import json
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_pool import FakePool
from flight_messages import SCHEMA, all_replies, batch, command_request, echo_command, finish, reply_metadata
from front_calls import Gate, in_a_thread, until
from front_harness import Running, RunningFront
from signing import COMMAND_SHA256, DAY_MILLISECONDS, Driver, write_signers

from updraft.v1.exchange_pb2 import ErrorKind, ExchangeCommand, SessionFunction
from updraft_server.front.signatures.signatures import Signatures

HEADER = SCHEMA.serialize().to_pybytes()
COMMAND = echo_command(session=SessionFunction(python_version="3.11", spark_version="4.3.0"), payload=b"a pickle")


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def settings(tmp_path: Path, driver: Driver) -> dict[str, Any]:
    return {"session_functions": "signed", **write_signers(tmp_path / "signers", [driver])}


async def outcome(front: RunningFront, command: ExchangeCommand, *, runs: bool) -> tuple[grpc.StatusCode, str]:
    """Return the status of an exchange and its error message.

    A refused exchange sends its command alone: a client that goes on writing may learn of the end before the reason.
    """
    call = front.exchange()
    for message in (command_request(command), *((batch(1), finish(1)) if runs else ())):
        await call.write(message)
    if runs:
        await call.done_writing()
    replies, error = await all_replies(call)
    if error is None:
        return grpc.StatusCode.OK, ""
    told = reply_metadata(replies[-1]).error
    assert told.kind == ErrorKind.ERROR_KIND_FUNCTION_REFUSED
    return error.code(), told.message


async def test_what_a_driver_has_signed_runs_as_often_as_it_comes(
    running_front: Running, settings: dict[str, Any], driver: Driver
) -> None:
    signed = driver.signed(COMMAND, HEADER)
    async with running_front(FakePool(), **settings) as front:
        for attempt in range(3):
            signed.task.attempt_number = attempt
            assert await outcome(front, signed, runs=True) == (grpc.StatusCode.OK, "")


async def test_whoever_has_no_key_runs_no_code(
    running_front: Running, settings: dict[str, Any], driver: Driver
) -> None:
    altered = driver.signed(COMMAND, HEADER)
    altered.payload = b"another pickle"
    of_another = driver.signed(COMMAND, HEADER)
    of_another.task.owner.application_id = "app-2"
    pool = FakePool()
    async with running_front(pool, **settings) as front:
        for command, says in (
            (COMMAND, "only functions that their driver has signed"),
            (Driver().signed(COMMAND, HEADER), "does not know the key"),
            (driver.signed(COMMAND, b"header of another schema"), "the schema of the arguments differs"),
            (altered, "the function is not the one that was signed"),
            (of_another, "for the application 'app-1', but the exchange is of 'app-2'"),
        ):
            code, told = await outcome(front, command, runs=False)
            assert (code, says in told) == (grpc.StatusCode.PERMISSION_DENIED, True), told
        assert not pool.leases
        # The operator deploys registered functions, so they need no signature.
        assert await outcome(front, echo_command(), runs=True) == (grpc.StatusCode.OK, "")


async def test_the_audit_log_has_whose_signature_it_was(
    running_front: Running, settings: dict[str, Any], driver: Driver, tmp_path: Path
) -> None:
    log = tmp_path / "audit"
    async with running_front(FakePool(), audit_file=log, **settings) as front:
        await outcome(front, driver.signed(COMMAND, HEADER), runs=True)
    opened, _ended = map(json.loads, log.read_text().splitlines())
    assert (opened["event"], opened["signer"]) == ("opened", "a-driver")
    assert [digest.partition(":")[0] for digest in opened["functions"]] == ["sha256"]


@pytest.mark.parametrize("revocation", ["key", "function"])
async def test_what_is_revoked_while_it_waits_for_a_worker_does_not_run(
    running_front: Running, settings: dict[str, Any], driver: Driver, tmp_path: Path, revocation: str
) -> None:
    gate, signers = Gate(), tmp_path / "signers"
    pool = FakePool(workers=1, script=gate.script)
    async with running_front(pool, **settings) as front:
        running = front.exchange()
        await running.write(command_request(driver.signed(COMMAND, HEADER)))
        await running.read()
        waiting = front.exchange()
        another_task = driver.signed(COMMAND, HEADER)
        another_task.task.task_attempt_id += 1
        for message in (command_request(another_task), finish(0)):
            await waiting.write(message)
        await waiting.done_writing()
        await until(lambda: front.front.admission.waiting == 1)
        if revocation == "key":
            write_signers(signers, [Driver("another")])
        else:
            write_signers(signers, [driver], revoked=[f"sha256:{COMMAND_SHA256.hex()}"])
        gate.opened.set()
        await running.write(finish(0))
        await running.done_writing()
        assert (await all_replies(running))[1] is None
        replies, error = await all_replies(waiting)
        assert error is not None
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_FUNCTION_REFUSED


async def test_on_the_way_to_signatures_what_nobody_signed_runs_and_is_counted(
    running_front: Running, settings: dict[str, Any], driver: Driver
) -> None:
    settings |= {"session_functions": "prefer-signed", "metrics_listen": "127.0.0.1:0"}
    async with running_front(FakePool(), **settings) as front:
        for command in (COMMAND, driver.signed(COMMAND, HEADER), COMMAND):
            assert await outcome(front, command, runs=True) == (grpc.StatusCode.OK, "")
        code, told = await outcome(front, Driver().signed(COMMAND, HEADER), runs=False)
        assert (code, "does not know the key" in told) == (grpc.StatusCode.PERMISSION_DENIED, True)
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
    for signature, count in (("unsigned", 2), ("valid", 1), ("refused", 1)):
        assert f'updraft_session_functions_total{{signature="{signature}"}} {count}.0' in text


async def test_what_has_begun_and_what_waits_outlive_their_statement(
    running_front: Running, settings: dict[str, Any], driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_seconds = 0.0
    clock = partial(Signatures, clock=lambda: time.time() + later_seconds)
    monkeypatch.setattr("updraft_server.front.process.Signatures", clock)
    gate = Gate()
    async with running_front(FakePool(workers=1, script=gate.script), **settings) as front:
        signed = driver.signed(COMMAND, HEADER)
        running, waiting = front.exchange(), front.exchange()
        await running.write(command_request(signed))
        await running.read()
        signed.task.task_attempt_id += 1
        await waiting.write(command_request(signed))
        await until(lambda: front.front.admission.waiting == 1)
        later_seconds = 8 * DAY_MILLISECONDS / 1000
        gate.opened.set()
        for call in (running, waiting):
            await call.write(finish(0))
            await call.done_writing()
            assert (await all_replies(call))[1] is None
        code, told = await outcome(front, signed, runs=False)
        assert (code, "it expired 86400 seconds ago" in told) == (grpc.StatusCode.PERMISSION_DENIED, True), told
