# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import stat
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import pyarrow as pa
import pyarrow.flight as flight
import pytest
import trustme
from flight_messages import (
    all_replies,
    batch,
    command_request,
    echo_command,
    finish,
    path_request,
    reply_metadata,
)
from front_harness import Running, RunningFront
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from updraft.service.lifecycle import Event, Phase
from updraft.v1.control_pb2 import PoolState, PoolStatus
from updraft.v1.exchange_pb2 import ErrorKind
from updraft_server.front.process import FrontError
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.pool import Lease, LeaseOutcome, NoIdleWorker, TaskKey
from updraft_server.pool.testing import FakePool, FakeWorker

Answer = TypeVar("Answer")

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Gate:
    """A worker that ends its exchange when the test opens the gate."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def script(self, worker: FakeWorker) -> None:
        await worker.receive()
        await worker.send(FrameKind.MESSAGE, b"", b"schema")
        await self.opened.wait()
        while (await worker.receive()).kind is not FrameKind.END:
            pass
        await worker.send(FrameKind.DONE)


async def health(channel: grpc.aio.Channel, name: str = "") -> int:
    reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
    return int(reply.status)


async def next_health(watch: Any) -> int:
    return int((await asyncio.wait_for(watch.read(), 60)).status)


async def admitted(channel: grpc.aio.Channel, authorization: str = "") -> grpc.StatusCode:
    """The status of a call that every client may make, if it may make any."""
    method = channel.unary_stream("/arrow.flight.protocol.FlightService/ListActions")
    call = method(b"", metadata=(("authorization", authorization),) if authorization else (), timeout=60)
    return (await _status(call)) or grpc.StatusCode.OK


async def refused(channel: grpc.aio.Channel) -> grpc.StatusCode | None:
    """The status of an exchange that is refused at its first message."""
    call = channel.stream_stream("/arrow.flight.protocol.FlightService/DoExchange")(timeout=60)
    await call.write(path_request("echo"))
    return await _status(call)


async def _status(call: Any) -> grpc.StatusCode | None:
    _, error = await all_replies(call)
    return error.code() if error is not None else None


def in_a_thread(function: Callable[..., Answer], *arguments: Any) -> asyncio.Future[Answer]:
    return asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def pyarrow_echo(location: str, **options: Any) -> list[pa.RecordBatch]:
    batches = [pa.record_batch({"_0": pa.array([number, None], pa.int64())}) for number in range(20)]
    with flight.connect(location, **options) as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("echo"))
        writer.begin(batches[0].schema)
        reading: list[pa.RecordBatch] = []
        thread = threading.Thread(target=lambda: reading.extend(chunk.data for chunk in reader))
        thread.start()
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        thread.join()
        writer.close()
    assert reading == batches
    return reading


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
            assert {action.type for action in client.list_actions()} == {"updraft.pool_status"}
            [result] = client.do_action("updraft.pool_status")
            status = PoolStatus.FromString(result.body.to_pybytes())
            assert (status.state, status.workers_idle) == (PoolState.POOL_STATE_READY, 1)
            with pytest.raises(pa.ArrowInvalid, match=r"updraft\.pool_status$"):
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
        async def lease(self, task: TaskKey | None, binding: str = "") -> Lease:
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


async def test_a_drain_ends_what_outlives_its_timeout(running_front: Running) -> None:
    async with running_front(FakePool(script=Gate().script), drain_timeout_seconds=0.2) as front:
        running = front.exchange()
        await running.write(command_request(echo_command()))
        await running.read()
        front.front.lifecycle.handle(Event.DRAIN_REQUESTED)
        replies, error = await all_replies(running)
        await front.stopped()
    in_band = reply_metadata(replies[-1]).error
    assert in_band.kind == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
    assert "draining and ended the exchange" in in_band.message
    assert "--drain-timeout-seconds" in in_band.message
    assert error is not None
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


async def test_calls_need_a_known_token_and_health_needs_none(running_front: Running, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# of the team\nfirst\nsecond\n")
    async with running_front(FakePool(), token_file=tokens) as front:
        assert await health(front.channel) == SERVING
        assert await admitted(front.channel) is grpc.StatusCode.UNAUTHENTICATED
        for bad in ("Bearer third", "Bearer # of the team", "first", "Bearer "):
            assert await admitted(front.channel, bad) is grpc.StatusCode.UNAUTHENTICATED
        assert await admitted(front.channel, "Bearer second") is grpc.StatusCode.OK
        tokens.write_text("third\n")
        assert await admitted(front.channel, "Bearer third") is grpc.StatusCode.OK
        assert await admitted(front.channel, "Bearer second") is grpc.StatusCode.UNAUTHENTICATED


async def test_a_token_file_that_is_taken_away_revokes_its_tokens(running_front: Running, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")
    async with running_front(FakePool(), token_file=tokens) as front:
        assert await admitted(front.channel, "Bearer first") is grpc.StatusCode.OK
        with capture_logs() as log:
            tokens.unlink()
            # Nobody calls meanwhile.
            for _ in range(600):
                if any("no token is valid any more" in line["event"] for line in log):
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail("nobody looked at the file")
            assert await admitted(front.channel, "Bearer first") is grpc.StatusCode.UNAUTHENTICATED
            assert await health(front.channel) == SERVING
            tokens.write_text("second\n")
            assert await admitted(front.channel, "Bearer second") is grpc.StatusCode.OK


def write_certificate(authority: trustme.CA, directory: Path) -> None:
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(directory / "tls.crt")
    issued.private_key_pem.write_to_path(directory / "tls.key")


def tls_settings(directory: Path) -> dict[str, Path]:
    return {"tls_certificate_file": directory / "tls.crt", "tls_key_file": directory / "tls.key"}


def secure_channel(front: RunningFront, credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
    # A subchannel of its own, so that every channel makes its own handshake.
    options = (("grpc.use_local_subchannel_pool", 1),)
    port = front.address.rpartition(":")[2]
    return grpc.aio.secure_channel(f"localhost:{port}", credentials, options=options)


async def test_a_renewed_certificate_is_served_without_a_restart(running_front: Running, tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    write_certificate(old, tmp_path)
    async with running_front(FakePool(), **tls_settings(tmp_path)) as front:
        trusts_old = grpc.ssl_channel_credentials(old.cert_pem.bytes())
        trusts_new = grpc.ssl_channel_credentials(new.cert_pem.bytes())
        async with secure_channel(front, trusts_old) as channel:
            assert await admitted(channel) is grpc.StatusCode.OK
        write_certificate(new, tmp_path)
        async with secure_channel(front, trusts_new) as channel:
            assert await admitted(channel) is grpc.StatusCode.OK
        async with secure_channel(front, trusts_old) as channel:
            assert await admitted(channel) is grpc.StatusCode.UNAVAILABLE


async def test_a_broken_renewal_leaves_the_old_certificate_in_force(running_front: Running, tmp_path: Path) -> None:
    authority = trustme.CA()
    write_certificate(authority, tmp_path)
    async with running_front(FakePool(), **tls_settings(tmp_path)) as front:
        (tmp_path / "tls.crt").write_text("not a certificate")
        async with secure_channel(front, grpc.ssl_channel_credentials(authority.cert_pem.bytes())) as channel:
            assert await admitted(channel) is grpc.StatusCode.OK


async def test_mutual_tls_turns_away_a_client_without_a_certificate(running_front: Running, tmp_path: Path) -> None:
    authority = trustme.CA()
    write_certificate(authority, tmp_path)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    client = authority.issue_cert("client")
    known = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(), client.private_key_pem.bytes(), client.cert_chain_pems[0].bytes()
    )
    settings = {**tls_settings(tmp_path), "tls_client_ca_file": tmp_path / "ca.crt"}
    async with running_front(FakePool(), **settings) as front:
        async with secure_channel(front, known) as channel:
            assert await admitted(channel) is grpc.StatusCode.OK
        async with secure_channel(front, grpc.ssl_channel_credentials(authority.cert_pem.bytes())) as channel:
            assert await admitted(channel) is grpc.StatusCode.UNAVAILABLE


async def test_metrics_count_exchanges_and_bytes(running_front: Running) -> None:
    async with running_front(FakePool(), metrics_listen="127.0.0.1:0") as front:
        await in_a_thread(pyarrow_echo, f"grpc://{front.address}")
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_exchanges_total{function="echo",outcome="ok"} 1.0' in text
        assert 'updraft_workers{state="idle"} 1.0' in text
        assert "updraft_exchanges_waiting 0.0" in text


async def test_metrics_say_what_ended_workers_and_how_long_the_pool_lacked_them(running_front: Running) -> None:
    pool = FakePool(workers=2)
    async with running_front(pool, metrics_listen="127.0.0.1:0", workers=2) as front:
        pool.changed()
        pool.exits["signal"], pool.idle = 1, 1
        pool.changed()
        pool.idle = 2
        pool.changed()
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_worker_exits_total{reason="signal"} 1.0' in text
        assert "updraft_healing_seconds_count 1.0" in text


async def test_metrics_tell_applications_apart_and_their_stages_while_they_run(running_front: Running) -> None:
    gate = Gate()
    async with running_front(FakePool(script=gate.script), metrics_listen="127.0.0.1:0") as front:
        url = f"http://{front.settings.metrics_address}/metrics"
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await call.read()
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_stage_exchanges{application="app-1",phase="running",stage="2.0"} 1.0' in text
        gate.opened.set()
        await call.write(batch(1))
        await call.write(finish(1, rows=10))
        await call.done_writing()
        await all_replies(call)
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_application_exchanges_total{application="app-1",outcome="ok"} 1.0' in text
        assert 'updraft_application_rows_total{application="app-1"} 10.0' in text
        assert 'updraft_rows_total{function="echo"} 10.0' in text
        assert 'updraft_batch_seconds_count{function="echo"} 1.0' in text
        assert 'stage="2.0"' not in text


async def test_a_name_that_does_not_exist_becomes_no_series(running_front: Running) -> None:
    async with running_front(FakePool(), metrics_listen="127.0.0.1:0") as front:
        call = front.exchange()
        await call.write(path_request("invented-by-a-client"))
        await all_replies(call)
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert "invented-by-a-client" not in text


async def test_the_ready_file_names_addresses_and_processes(running_front: Running, tmp_path: Path) -> None:
    async with running_front(FakePool(), ready_file=tmp_path / "ready.json") as front:
        ready = json.loads((tmp_path / "ready.json").read_text())
        assert ready["listen"] == front.address
        assert {"front", "supervisor", "zygote", "workers"} <= set(ready)


async def test_an_address_in_use_is_named(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        with pytest.raises(FrontError, match=front.address):
            async with running_front(FakePool(), listen=front.address):
                pass


async def test_a_pool_that_is_still_starting_is_unavailable_and_not_without_functions(running_front: Running) -> None:
    class SlowPool(FakePool):
        def __init__(self) -> None:
            super().__init__()
            self.begun = asyncio.Event()
            self.may_start = asyncio.Event()
            self.functions = ()

        async def start(self) -> None:
            self.begun.set()
            await self.may_start.wait()

    pool = SlowPool()
    async with running_front(pool, wait_until=pool.begun) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        _, error = await all_replies(call)
        assert error is not None
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert await health(front.channel) == NOT_SERVING
        pool.may_start.set()
