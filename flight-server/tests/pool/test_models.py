# SPDX-License-Identifier: Apache-2.0
"""Model processes as a front sees them when their zygote retires; a test answers for the zygote."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import (
    MeasuredModels,
    MeasureModels,
    ModelEnded,
    ModelFault,
    ModelReplica,
    ModelStarted,
    ModelUsage,
)
from updraft_server.ipc.zygote_packets import MAX_PACKET_BYTES, Packet, ShowStack, decode, encode
from updraft_server.pool.models import PooledModels
from updraft_server.pool.worker_events import WorkerOutput
from updraft_server.pool.worker_output import Outputs


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the loop read incoming data until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(0.01)


def usage(name: str, *replicas: ModelReplica, loads: int = 0) -> ModelUsage:
    return ModelUsage(name, "1", [*replicas], loads, 0, 0, BatchRecord().to_plain())


def replica(model: str, state: str = "ready") -> ModelReplica:
    return ModelReplica(model, 0, 4711, state, 1000, 1)


class Retired:
    """Retired zygote with one process `old` of function `f`."""

    def __init__(self) -> None:
        self.printed: list[WorkerOutput] = []
        self.models = PooledModels(Outputs(100.0, self.printed.append, lambda _: None), lambda: None)
        self.output, self.stack = self.start("old")
        self.models.measured([usage("f", replica("old"), loads=3)])
        self.end, fronts_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.end.setblocking(False)
        self.models.retire(fronts_end)

    def start(self, model: str) -> tuple[int, int]:
        """Start a process and return its ends of the pipes for output and stacks."""
        output_read, output = os.pipe()
        stack_read, stack = os.pipe()
        self.models.take(ModelStarted(model, "f", "1", 4711), [output_read, stack_read])
        return output, stack

    async def receive(self) -> Packet:
        return decode(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.end, MAX_PACKET_BYTES), 60))

    def send(self, packet: Packet) -> None:
        self.end.send(encode(packet))

    async def until_printed(self, *lines: str) -> None:
        await eventually(lambda: [each.line for each in self.printed] == list(lines))


@pytest.fixture
async def retired() -> AsyncIterator[Retired]:
    zygote = Retired()
    yield zygote
    zygote.models.close()
    zygote.end.close()
    os.close(zygote.stack)


async def until_used(models: PooledModels, expected: list[ModelUsage]) -> None:
    await eventually(lambda: models.usage == expected)


async def test_what_a_process_prints_is_read_until_it_ends(retired: Retired) -> None:
    retired.models.lost()
    os.write(retired.output, b"still here\n")
    await retired.until_printed("still here")
    retired.send(ModelEnded("old", "made way for its successor", is_expected=True))
    os.write(retired.output, b"the last word\n")
    await retired.until_printed("still here", "the last word")
    await eventually(lambda: _is_closed(retired.output))


async def test_a_process_is_measured_and_shown_beside_those_of_the_next_zygote(retired: Retired) -> None:
    assert retired.models.usage == [usage("f", replica("old", "retiring"), loads=3)]
    retired.models.measured([usage("f", replica("new"), loads=1)])
    assert await retired.receive() == MeasureModels(0)
    grown = replica("old")._replace(memory_bytes=5000)
    retired.send(MeasuredModels(0, [usage("f", grown, loads=3)], are_last=False))
    assert await retired.receive() == MeasureModels(0, 1)
    retired.send(MeasuredModels(0, [usage("gone", replica("older")), usage("unused")], are_last=True))
    expected = [
        usage("f", replica("new"), grown._replace(state="retiring"), loads=1),
        usage("gone", replica("older", "retiring")),
    ]
    await until_used(retired.models, expected)


async def test_the_stack_of_a_process_is_still_asked_for_there(retired: Retired) -> None:
    asking = asyncio.create_task(retired.models.stack("old", lambda _: None))
    assert await retired.receive() == ShowStack("old")
    os.write(retired.stack, b"in f")
    assert await asyncio.wait_for(asking, 60) == "in f"


async def test_a_fault_of_the_old_code_is_none_of_the_new(retired: Retired) -> None:
    retired.send(ModelFault("f", "1", "it broke"))
    retired.models.measured([])
    await retired.receive()
    retired.send(MeasuredModels(0, [], are_last=True))
    await until_used(retired.models, [])
    assert not retired.models.faults


async def test_with_a_retired_zygote_its_processes_go(retired: Retired) -> None:
    retired.end.close()
    await until_used(retired.models, [])
    assert not retired.models.are_there
    assert _is_closed(retired.output)


def _is_closed(output: int) -> bool:
    try:
        os.write(output, b"\n")
    except BrokenPipeError:
        return True
    return False
