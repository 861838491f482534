# SPDX-License-Identifier: Apache-2.0
"""Memory of the front while many clients send large messages before they have a worker."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from artifact_clients import artifact, command, part
from flight_messages import FlightData, command_request, reply_metadata
from front_harness import DO_EXCHANGE
from served_pool import HANG_SECONDS, Server, serves_again
from tests.support.constants import with_constants

from updraft.v1.exchange_pb2 import Owner

MIB = 1024 * 1024
QUEUE_BYTES = 64 * MIB
# All their messages together take 1,600 MiB, or twice that while gRPC joins their pieces: more than the test allows.
CLIENTS = 40
PART_BYTES = 40 * MIB
# On a busy machine, up to twelve messages may arrive between two looks. gRPC holds the pieces of a message while it
# joins them, so each message may be in memory twice.
BETWEEN_LOOKS_BYTES = 12 * 2 * PART_BYTES
# The front's modules, allocations before it refuses clients, and memory that the allocator keeps.
OWN_BYTES = 200 * MIB


def peak_bytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    small_queue = with_constants(tmp_path, {"updraft_server.front.queue.admission.QUEUE_BYTES": QUEUE_BYTES})
    options = ("--workers=1", "--session-functions=unsigned")
    running = await asyncio.to_thread(partial(Server, tmp_path, *options, env=small_queue))
    yield running
    await asyncio.to_thread(running.stop)


LARGE = bytes(PART_BYTES)
PART = part(artifact(LARGE, broadcast_id=1).sha256, LARGE)


async def send_artifact(call: Any, number: int) -> None:
    need = artifact(LARGE, broadcast_id=1)
    await call.write(command_request(command([need], Owner(application_id=f"app-{number}"))))
    if reply_metadata(await call.read()).WhichOneof("event") == "artifacts_wanted":
        await call.write(PART)
        await call.read()


async def send_command(call: Any, _number: int) -> None:
    await call.write(bytes(FlightData(flight_descriptor={"type": 2, "cmd": b"x"}, data_body=LARGE).SerializeToString()))
    await call.read()


@pytest.mark.parametrize("send", [send_artifact, send_command])
async def test_many_large_messages_take_no_more_than_the_queue_may(server: Server, send: Any) -> None:
    ready = server.ready()

    async def attempt(number: int) -> None:
        # Each client has a connection of its own.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(ready["listen"], options=options) as channel:
            call = channel.stream_stream(DO_EXCHANGE)(timeout=HANG_SECONDS)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await send(call, number)

    await asyncio.gather(*map(attempt, range(CLIENTS)))
    assert peak_bytes(ready["front"]) < QUEUE_BYTES + BETWEEN_LOOKS_BYTES + OWN_BYTES
    assert server.ready()["front"] == ready["front"]
    assert await asyncio.to_thread(serves_again, server)
