# SPDX-License-Identifier: Apache-2.0
"""Rights of engines that speak plain Flight, and what their headers cannot gain."""

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from fake_pool import FakePool, FakeWorker
from flight_messages import FlightData, all_replies, path_request
from front_calls import Gate, in_a_thread, until
from front_harness import Running, RunningFront
from pyarrow import flight

from updraft.errors import UserError
from updraft_server.ipc.frames import FrameKind

ECHO = FlightData.FromString(path_request("echo")).flight_descriptor
OTHER = FlightData.FromString(path_request("other")).flight_descriptor
IDENTITIES = """
[[identity]]
name = "of-a"
tenant = "a"
scopes = ["call"]
token_sha256 = ["{of_a}"]

[[identity]]
name = "of-nobody"
tenant = "b"
scopes = ["session"]
token_sha256 = ["{of_nobody}"]
"""


class Workers:
    """Workers that record the tenant of each exchange."""

    def __init__(self) -> None:
        self.tenants: list[str] = []

    async def script(self, worker: FakeWorker) -> None:
        self.tenants.append(json.loads(bytes((await worker.receive()).app_metadata))["tenant"])
        await worker.send(FrameKind.MESSAGE, b"", b"schema")
        while (await worker.receive()).kind is not FrameKind.END:
            pass
        await worker.send(FrameKind.DONE)


async def status_of_call(front: RunningFront, *headers: tuple[str, str], rest: Sequence[bytes] = ()) -> tuple[str, str]:
    call = front.exchange(metadata=headers)
    # The pool may have ended the call before.
    with contextlib.suppress(grpc.aio.AioRpcError):
        for message in (path_request("echo"), *rest):
            await call.write(message)
        await call.done_writing()
    _, error = await all_replies(call)
    return ("OK", "") if error is None else (error.code().name, error.details() or "")


async def test_a_descriptor_that_comes_again_with_each_message_is_no_second_one(running_front: Running) -> None:
    again = FlightData(flight_descriptor=ECHO, data_header=b"h", data_body=b"b").SerializeToString()
    async with running_front(FakePool()) as front:
        assert await status_of_call(front, rest=[again, again]) == ("OK", "")


async def test_another_descriptor_within_an_exchange_is_refused(running_front: Running) -> None:
    other = FlightData(flight_descriptor=OTHER, data_header=b"h", data_body=b"b").SerializeToString()
    async with running_front(FakePool()) as front:
        code, says = await status_of_call(front, rest=[other])
        assert (code, "second flight descriptor" in says) == ("INVALID_ARGUMENT", True)


async def test_an_exchange_that_waits_for_a_worker_has_its_headers_already(running_front: Running) -> None:
    """RisingWave gives up on a call whose headers take 5 seconds; the time after the headers does not count."""
    gate = Gate()
    async with running_front(FakePool(1, gate.script)) as front:
        first, second = front.exchange(), front.exchange()
        await first.write(path_request("echo"))
        await until(lambda: front.pool.busy == 1)
        await second.write(path_request("echo"))
        await second.initial_metadata()
        gate.opened.set()
        for call in (first, second):
            await call.done_writing()
            assert (await all_replies(call))[1] is None


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        ({"x-databend-tenant": "theirs"}, "theirs"),
        ({"x-databend-tenant": "theirs", "x-updraft-tenant": "chosen"}, "chosen"),
        ({}, ""),
    ],
)
async def test_databends_tenant_counts_where_nothing_else_says_whose_a_call_is(
    running_front: Running, headers: dict[str, str], tenant: str
) -> None:
    workers = Workers()
    async with running_front(FakePool(1, workers.script)) as front:
        assert await status_of_call(front, *headers.items()) == ("OK", "")
    assert workers.tenants == [tenant]


async def test_databends_tenant_never_gets_an_identity_another_tenant_or_a_scope(
    running_front: Running, tmp_path: Path
) -> None:
    identities = tmp_path / "identities.toml"
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("of_a", "of_nobody")}
    identities.write_text(IDENTITIES.format(**digests))
    workers = Workers()
    async with running_front(FakePool(1, workers.script), identities_file=identities) as front:

        async def status(token: str, tenant: str) -> str:
            headers = (("authorization", f"Bearer {token}"), ("x-databend-tenant", tenant))
            return (await status_of_call(front, *headers))[0]

        # The engine cannot omit the header, so the front does not treat it as a claim.
        assert await status("of_a", "b") == "OK"
        assert workers.tenants == ["a"]
        assert await status("of_nobody", "a") == "PERMISSION_DENIED"
        assert await status("nobody", "a") == "UNAUTHENTICATED"
    assert workers.tenants == ["a"]


async def test_several_databend_tenants_in_one_call_are_refused(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        code, says = await status_of_call(front, ("x-databend-tenant", "a"), ("x-databend-tenant", "b"))
    assert (code, "several headers" in says) == ("UNAUTHENTICATED", True)


async def test_risingwave_hears_which_protocol_a_pool_speaks(running_front: Running) -> None:
    async with running_front(FakePool()) as front:

        def ask() -> list[bytes]:
            with flight.connect(f"grpc://{front.address}") as client:
                assert "protocol_version" in [action.type for action in client.list_actions()]
                return [result.body.to_pybytes() for result in client.do_action(flight.Action("protocol_version", b""))]

        assert await in_a_thread(ask) == [b"\x02"]


async def test_nobody_hears_the_protocol_without_credentials(running_front: Running, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret\n")
    async with running_front(FakePool(), token_file=tokens) as front:
        method = front.channel.unary_stream("/arrow.flight.protocol.FlightService/DoAction")
        action = flight.Action("protocol_version", b"").serialize()
        _, error = await all_replies(method(bytes(action), timeout=60))
        assert error is not None
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_plain_client_is_told_all_lines_of_an_exception(running_front: Running) -> None:
    message = "ValueError: 2 validation errors for Item\nprice\n  must not be negative [got -3]\nname\n  is missing"

    async def raises(worker: FakeWorker) -> None:
        await worker.receive()
        await worker.send(FrameKind.FAILED, UserError(message).to_message().SerializeToString())

    async with running_front(FakePool(script=raises)) as front:
        assert await status_of_call(front) == ("UNKNOWN", message)
        # The status page shows the first line.
        (failure,) = front.front.activity.failures
        assert failure.message == "ValueError: 2 validation errors for Item"
