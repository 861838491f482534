# SPDX-License-Identifier: Apache-2.0
"""Front as a whole: its listeners, health, control calls, drain and start."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from fake_pool import FakePool
from flight_messages import (
    all_replies,
    command_request,
    echo_command,
    path_request,
    reply_metadata,
)
from front_calls import NOT_SERVING, SERVING, Gate, admitted, health, in_a_thread, pyarrow_echo, status_of
from front_harness import Running
from grpc_health.v1 import health_pb2, health_pb2_grpc

from updraft.service.lifecycle import Event, Phase
from updraft.service.listeners import ListenError
from updraft.v1.control_pb2 import FunctionDescription, PoolState, PoolStatus
from updraft.v1.exchange_pb2 import ErrorKind
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import Lease, LeaseOutcome, NoIdleWorker, TaskKey


async def next_health(watch: Any) -> int:
    return int((await asyncio.wait_for(watch.read(), 60)).status)


def faults_of(location: str) -> dict[str, str]:
    with flight.connect(location) as client:
        [result] = client.do_action("updraft.pool_status")
        functions = PoolStatus.FromString(result.body.to_pybytes()).functions
        return {function.name: function.fault for function in functions}


async def refused(channel: grpc.aio.Channel) -> grpc.StatusCode | None:
    """Return the status of an exchange that the front refuses at its first message."""
    call = channel.stream_stream("/arrow.flight.protocol.FlightService/DoExchange")(timeout=60)
    await call.write(path_request("echo"))
    return await status_of(call)


async def test_a_pyarrow_client_gets_its_batches_back_over_tcp_and_unix_socket(
    running_front: Running, tmp_path: Path
) -> None:
    path = tmp_path / "flight.sock"
    async with running_front(FakePool(workers=2), listen_unix=path) as front:
        await in_a_thread(pyarrow_echo, f"grpc://{front.address}")
        await in_a_thread(pyarrow_echo, f"grpc+unix://{path}")
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


async def test_control_calls_answer_a_pyarrow_client(running_front: Running) -> None:
    def ask(location: str) -> None:
        with flight.connect(location) as client:
            [info] = client.list_flights()
            assert info.descriptor.path == [b"echo", b"1"]
            assert client.get_flight_info(flight.FlightDescriptor.for_path("echo")).descriptor.path == [b"echo", b"1"]
            with pytest.raises(KeyError, match="echo 1"):
                client.get_flight_info(flight.FlightDescriptor.for_path("nope"))
            listed = [action.type for action in client.list_actions()]
            views = ["updraft.output", "updraft.profile"]
            assert listed == ["updraft.pool_status", *views, "protocol_version", "updraft.whoami"]
            [result] = client.do_action("updraft.pool_status")
            status = PoolStatus.FromString(result.body.to_pybytes())
            assert (status.state, status.workers_idle) == (PoolState.POOL_STATE_READY, 1)
            with pytest.raises(pa.ArrowInvalid, match=f"this pool has {', '.join(listed)}$"):
                list(client.do_action("nope"))
            with pytest.raises(pa.ArrowNotImplementedError):
                client.do_get(flight.Ticket(b"x")).read_all()

    async with running_front(FakePool()) as front:
        await in_a_thread(ask, f"grpc://{front.address}")


async def test_health_is_served_on_both_listeners_for_every_name(running_front: Running) -> None:
    async with (
        running_front(FakePool(), admin_listen="127.0.0.1:0") as front,
        grpc.aio.insecure_channel(front.settings.admin_listen) as admin,
    ):
        for channel in (admin, front.channel):
            for name in ("", "arrow.flight.protocol.FlightService", "updraft.function/echo", "updraft.live"):
                assert await health(channel, name) == SERVING
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await health(channel, "updraft.function/nope")
            assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_function_that_cannot_be_called_does_not_serve_and_says_why_and_others_do(
    running_front: Running,
) -> None:
    pool = FakePool()
    pool.functions = [FunctionDescription(name=name, version="1") for name in ("good", "bad")]
    async with running_front(pool) as front:
        health_of = health_pb2_grpc.HealthStub(front.channel)
        watch = health_of.Watch(health_pb2.HealthCheckRequest(service="updraft.function/bad"))
        assert await next_health(watch) == SERVING
        pool.model_faults = {("bad", "1"): "its model process was killed by SIGSEGV"}
        pool.changed()
        assert await next_health(watch) == NOT_SERVING
        assert await health(front.channel, "updraft.function/good") == SERVING
        assert await health(front.channel) == SERVING
        faults = await in_a_thread(faults_of, f"grpc://{front.address}")
        assert faults == {"good": "", "bad": "its model process was killed by SIGSEGV"}
        pool.model_faults = {}
        pool.changed()
        assert await next_health(watch) == SERVING


async def test_a_connection_to_the_admin_listener_grows_only_so_old(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.listeners._ADMIN_CONNECTION_MILLISECONDS", 500)
    monkeypatch.setattr("updraft.service.listeners._ADMIN_GRACE_MILLISECONDS", 500)
    async with (
        running_front(FakePool(), admin_listen="127.0.0.1:0") as front,
        grpc.aio.insecure_channel(front.settings.admin_listen) as admin,
    ):
        watches = [
            health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
            for channel in (admin, front.channel)
        ]
        for watch in watches:
            assert await next_health(watch) == SERVING
        # The admin listener closes old connections: its watch ends with an error, and new calls still work.
        assert await watches[0].code() is grpc.StatusCode.UNAVAILABLE
        assert await health(admin) == SERVING
        assert not watches[1].done()
        watches[1].cancel()


async def test_a_pool_without_a_warm_worker_does_not_serve(running_front: Running) -> None:
    pool = FakePool()
    async with running_front(pool) as front:
        watch = health_pb2_grpc.HealthStub(front.channel).Watch(health_pb2.HealthCheckRequest())
        assert await next_health(watch) == SERVING
        pool.idle = 0
        pool.changed()
        assert await next_health(watch) == NOT_SERVING
        pool.idle = 1
        pool.changed()
        assert await next_health(watch) == SERVING
        watch.cancel()


async def test_a_drain_finishes_what_runs_and_refuses_what_comes(running_front: Running) -> None:
    gate = Gate()
    async with running_front(FakePool(workers=2, script=gate.script)) as front:
        running = front.exchange()
        await running.write(path_request("echo"))
        await running.read()
        watch = health_pb2_grpc.HealthStub(front.channel).Watch(health_pb2.HealthCheckRequest())
        assert await next_health(watch) == SERVING
        front.front.lifecycle.handle(Event.DRAIN_REQUESTED)
        assert await next_health(watch) == NOT_SERVING
        assert await health(front.channel, "updraft.live") == SERVING
        assert await refused(front.channel) is grpc.StatusCode.UNAVAILABLE
        gate.opened.set()
        await running.done_writing()
        assert (await all_replies(running))[1] is None
        await front.stopped()
    assert front.pool.leases[0].outcome is LeaseOutcome.CLEAN


async def test_a_drain_refuses_who_waits_at_once(running_front: Running) -> None:
    gate, all_busy = Gate(), asyncio.Event()

    class WatchedPool(FakePool):
        async def lease(self, task: TaskKey | None, binding: Binding = REGISTERED, *, leave_fresh: int = 0) -> Lease:
            try:
                return await super().lease(task, binding)
            except NoIdleWorker:
                all_busy.set()
                raise

    async with running_front(WatchedPool(script=gate.script)) as front:
        running = front.exchange()
        await running.write(path_request("echo"))
        await running.read()
        waiting = asyncio.create_task(refused(front.channel))
        await asyncio.wait_for(all_busy.wait(), 60)
        front.front.lifecycle.handle(Event.DRAIN_REQUESTED)
        assert await waiting is grpc.StatusCode.UNAVAILABLE
        gate.opened.set()
        await running.done_writing()
        await all_replies(running)


@pytest.mark.parametrize(
    ("component", "setting"),
    [("", "--drain-timeout-seconds"), ("pools.etl", "pools.etl.drainTimeoutSeconds of the chart")],
)
async def test_a_drain_ends_what_outlives_its_timeout(
    running_front: Running, component: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPDRAFT_CONFIGURED_BY", component)
    pool = FakePool(script=Gate().script)
    async with running_front(pool, drain_timeout_seconds=0.2) as front:
        running = front.exchange()
        await running.write(command_request(echo_command()))
        await running.read()
        front.front.lifecycle.handle(Event.DRAIN_REQUESTED)
        replies, error = await all_replies(running)
        await front.stopped()
    in_band = reply_metadata(replies[-1]).error
    assert in_band.kind == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
    assert "draining and ended the exchange" in in_band.message
    assert setting in in_band.message
    assert error is not None
    assert setting in str(error.details())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert front.pool.leases[0].outcome is not LeaseOutcome.CLEAN


async def test_the_drain_action_is_refused(running_front: Running) -> None:
    def drain(location: str) -> None:
        refusal = pytest.raises(flight.FlightUnauthorizedError, match=r"SIGTERM.*--allow-remote-drain")
        with flight.connect(location) as client, refusal:
            list(client.do_action("updraft.drain"))

    async with running_front(FakePool()) as front:
        await in_a_thread(drain, f"grpc://{front.address}")
        assert front.front.lifecycle.phase is Phase.READY
        assert await admitted(front.channel) is grpc.StatusCode.OK


async def test_the_drain_action_drains_where_that_is_allowed(running_front: Running) -> None:
    def drain(location: str) -> None:
        with flight.connect(location) as client:
            assert "updraft.drain" in {action.type for action in client.list_actions()}
            assert len(list(client.do_action("updraft.drain"))) == 1

    async with running_front(FakePool(), allow_remote_drain=True) as front:
        await in_a_thread(drain, f"grpc://{front.address}")
        await front.stopped()


async def test_the_ready_file_names_addresses_and_processes(running_front: Running, tmp_path: Path) -> None:
    async with running_front(FakePool(), ready_file=tmp_path / "ready.json") as front:
        ready = json.loads((tmp_path / "ready.json").read_text())
        assert ready["listen"] == front.address
        assert {"front", "supervisor", "zygote", "workers"} <= set(ready)


async def test_an_address_in_use_is_named(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        with pytest.raises(ListenError, match=front.address):
            async with running_front(FakePool(), listen=front.address):
                pass


class SlowPool(FakePool):
    """Pool that starts when the test lets it; its functions are unknown until then."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_start = asyncio.Event()
        self.functions = ()

    async def start(self) -> None:
        self.begun.set()
        await self.may_start.wait()


async def test_a_front_that_is_told_to_end_does_not_wait_for_its_pool(running_front: Running) -> None:
    pool = SlowPool()
    async with running_front(pool, wait_until=pool.begun) as front:
        front.front.lifecycle.handle(Event.DRAIN_REQUESTED)
        await front.stopped()
        assert not pool.may_start.is_set()


async def test_a_pool_that_is_still_starting_is_unavailable_and_not_without_functions(running_front: Running) -> None:
    pool = SlowPool()
    async with running_front(pool, wait_until=pool.begun) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        _, error = await all_replies(call)
        assert error is not None
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert await health(front.channel) == NOT_SERVING
        pool.may_start.set()
