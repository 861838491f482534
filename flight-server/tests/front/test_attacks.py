# SPDX-License-Identifier: Apache-2.0
"""Network attacks by clients that never get a worker: the front survives and serves others."""

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import psutil
import pytest
import trustme
from fake_pool import FakePool
from flight_messages import all_replies, path_request
from front_harness import DO_EXCHANGE, Running, RunningFront
from grpc_health.v1 import health_pb2, health_pb2_grpc

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = struct.pack(">I", 0)[1:] + b"\x04\x00\x00\x00\x00\x00"
CONNECTIONS = 200
MEMORY_BYTES = 64 * 1024 * 1024
ANSWER_SECONDS = 60.0

HEADERS, CONTINUATION = 1, 9

_A_CONNECTION_OF_ITS_OWN = [("grpc.use_local_subchannel_pool", 1)]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal_header(name: bytes, value: bytes) -> bytes:
    """Encode a header in HPACK as never indexed; name and value are shorter than 127 bytes."""
    return b"\x10" + bytes([len(name)]) + name + bytes([len(value)]) + value


@asynccontextmanager
async def connections(
    address: str, count: int
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    host, _, port = address.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()
        for _, writer in opened:
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def serves(front: RunningFront) -> bool:
    # On a busy machine the short handshake timeout may cut off a connection, so the channel may reconnect.
    call = front.exchange(timeout=ANSWER_SECONDS, wait_for_ready=True)
    await call.write(path_request("echo"))
    await call.done_writing()
    return (await all_replies(call))[1] is None


async def hung_up(reader: asyncio.StreamReader) -> None:
    """Wait until the front has closed the connection."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(64 * 1024):
            pass


async def is_greeted(reader: asyncio.StreamReader) -> bool:
    """Return whether the front sends anything instead of hanging up."""
    with contextlib.suppress(ConnectionError):
        return bool(await reader.read(1))
    return False


def resident_bytes() -> int:
    """Return the memory that the process uses, without freed memory that the allocator kept."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


async def falls_below(limit_bytes: int) -> bool:
    """Return whether memory falls below the limit in time: the front hangs up before it frees the received bytes."""
    for _ in range(int(ANSWER_SECONDS)):
        if resident_bytes() < limit_bytes:
            return True
        await asyncio.sleep(1)
    return False


@pytest.mark.parametrize("sent", [b"", PREFACE[:10], PREFACE], ids=["nothing", "half a preface", "no settings"])
async def test_handshakes_that_never_end_are_hung_up_on(
    running_front: Running, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.listeners.HANDSHAKE_TIMEOUT_SECONDS", 1.0)
    async with running_front(FakePool()) as front:
        async with connections(front.address, CONNECTIONS) as slow:
            for _, writer in slow:
                writer.write(sent)
            assert await serves(front)
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.gather(*(hung_up(reader) for reader, _ in slow))
        assert await serves(front)


async def test_connections_beyond_the_limit_are_hung_up_on_at_once(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.listeners.most_connections", lambda: 10)
    monkeypatch.setattr("updraft.service.listeners.HANDSHAKE_TIMEOUT_SECONDS", 1000.0)
    async with running_front(FakePool()) as front:
        assert await serves(front)
        async with connections(front.address, CONNECTIONS) as many:
            async with asyncio.timeout(ANSWER_SECONDS):
                accepted = await asyncio.gather(*(is_greeted(reader) for reader, _ in many))
            # The front's own channel is the tenth.
            assert sum(accepted) == 9
            assert await serves(front)
        async with grpc.aio.insecure_channel(front.address, options=_A_CONNECTION_OF_ITS_OWN) as another:
            call = another.stream_stream(DO_EXCHANGE)(timeout=ANSWER_SECONDS, wait_for_ready=True)
            await call.write(path_request("echo"))
            await call.done_writing()
            assert (await all_replies(call))[1] is None


async def test_tls_handshakes_that_never_end_are_hung_up_on(
    running_front: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.listeners.HANDSHAKE_TIMEOUT_SECONDS", 1.0)
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "crt")
    issued.private_key_pem.write_to_path(tmp_path / "key")
    tls = {"tls_certificate_file": tmp_path / "crt", "tls_key_file": tmp_path / "key"}
    async with (
        running_front(FakePool(), **tls) as front,
        connections(front.address, CONNECTIONS) as slow,
    ):
        for _, writer in slow:
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        async with asyncio.timeout(ANSWER_SECONDS):
            await asyncio.gather(*(hung_up(reader) for reader, _ in slow))


GARBAGE: dict[str, Callable[[], bytes]] = {
    "noise": lambda: os.urandom(4096),
    "http 1": lambda: b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n",
    "tls": lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(512),
    "a huge frame": lambda: PREFACE + SETTINGS + b"\xff\xff\xff" + bytes(6) + os.urandom(4096),
    "unknown frames": lambda: PREFACE + SETTINGS + b"".join(frame(200 + i, 255, i, b"x" * i) for i in range(50)),
}


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_on_the_port_disturbs_nobody(running_front: Running, garbage: str) -> None:
    async with running_front(FakePool()) as front:
        async with connections(front.address, 20) as noisy:
            for _, writer in noisy:
                writer.write(GARBAGE[garbage]())
            assert await serves(front)
        assert await serves(front)


async def test_a_flood_of_headers_ends_its_connection_and_takes_no_memory(running_front: Running) -> None:
    block = b"".join(literal_header(b"x-%06d" % number, b"v" * 100) for number in range(140))
    async with running_front(FakePool()) as front:
        before = resident_bytes()
        async with connections(front.address, 1) as [(reader, writer)]:
            writer.write(PREFACE + SETTINGS + frame(HEADERS, 0, 1, block))
            ended = asyncio.ensure_future(hung_up(reader))
            with contextlib.suppress(ConnectionError):
                for _ in range(10_000):
                    writer.write(frame(CONTINUATION, 0, 1, block))
                    await writer.drain()
                    if ended.done():
                        break
            writer.close()
            async with asyncio.timeout(ANSWER_SECONDS):
                await ended
        assert await falls_below(before + MEMORY_BYTES)
        assert await serves(front)


async def test_giant_metadata_is_refused(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        call = front.exchange(metadata=(("x-updraft-tenant", "t" * 100_000),), timeout=ANSWER_SECONDS)
        _, error = await all_replies(call)
        assert error is not None
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await serves(front)


async def test_exchanges_that_say_nothing_are_ended(running_front: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.exchange.FIRST_MESSAGE_TIMEOUT_SECONDS", 3.0)
    async with running_front(FakePool()) as front:
        calls = [front.exchange(timeout=ANSWER_SECONDS) for _ in range(500)]
        silent = [asyncio.ensure_future(call.read()) for call in calls]
        assert await serves(front)
        await asyncio.wait(silent)
        assert {await call.code() for call in calls} == {grpc.StatusCode.INVALID_ARGUMENT}
        assert not front.pool.leases[1:]


async def test_a_connection_gets_no_more_calls_than_it_may_have(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.listeners.MAX_CALLS_OF_A_CONNECTION", 5)
    monkeypatch.setattr("updraft.service.exchange.FIRST_MESSAGE_TIMEOUT_SECONDS", 60.0)
    async with running_front(FakePool()) as front:
        calls = [front.exchange(timeout=1.0) for _ in range(50)]
        await asyncio.wait([asyncio.ensure_future(call.read()) for call in calls])
        # A call beyond the limit waits in the client, or the front rejects it if it left before the client knew the
        # limit.
        refused = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
        codes = [await call.code() for call in calls]
        assert set(codes) <= refused
        # Calls within the limit stay open until their deadline.
        assert codes.count(grpc.StatusCode.DEADLINE_EXCEEDED) >= 5
        assert await serves(front)


async def test_compressed_messages_are_refused_before_they_can_swell(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        call = front.channel.stream_stream(DO_EXCHANGE)(timeout=ANSWER_SECONDS, compression=grpc.Compression.Gzip)
        # Zeros compress to a thousandth, so a limit on received bytes would not limit memory.
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.write(bytes(1024 * 1024))
        # A client that is still writing when it is refused sees a different error.
        assert await call.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL)
        assert not front.pool.leases
        assert await serves(front)


async def test_a_flood_of_the_admin_port_holds_up_neither_exchanges_nor_probes(running_front: Running) -> None:
    async with running_front(FakePool(), admin_listen="127.0.0.1:0") as front:
        address = front.settings.admin_listen
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(CONNECTIONS):
                options = (("grpc.use_local_subchannel_pool", 1),)
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
                watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                assert await watch.read()
            await stack.enter_async_context(connections(address, CONNECTIONS))
            assert await serves(front)
            probe = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            request = health_pb2.HealthCheckRequest()
            answer = await health_pb2_grpc.HealthStub(probe).Check(request, timeout=ANSWER_SECONDS)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert await serves(front)
