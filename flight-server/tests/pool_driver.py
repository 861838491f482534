# SPDX-License-Identifier: Apache-2.0
"""Driver of real workers over their lease's socket, as the front drives them, but without gRPC."""

import asyncio
import dataclasses
import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from updraft.protocol import PROTOCOL_VERSION
from updraft.service.child import Child
from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.control import packet_pair
from updraft_server.ipc.frame_stream import FrameReceiver, FrameSender, PeerClosedError
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.load import Load
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.zygote_packets import ZygoteSettings
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import Lease, LeaseOutcome, NoIdleWorker, Owner, PoolSettings, TaskKey
from updraft_server.pool.pool import Pool
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput
from updraft_server.pool.zygote_source import ZygoteSource
from updraft_server.supervisor.zygote_child import start_zygote

_OUTCOMES = {
    FrameKind.DONE: LeaseOutcome.CLEAN,
    FrameKind.RETIRED: LeaseOutcome.RETIRED,
    FrameKind.FAILED: LeaseOutcome.BROKEN,
    FrameKind.CRASHED: LeaseOutcome.BROKEN,
}


class Zygotes:
    """Zygote of a test, which can be killed and started again."""

    def __init__(
        self,
        directory: Path,
        settings: WorkerSettings,
        modules: Iterable[str] = (),
        *,
        restricted: bool = False,
        shared_memory: str = "own",
        model_memory_bytes: int = 0,
        generation: int = 0,
        is_successor: bool = False,
    ) -> None:
        files = directory / "files"
        files.mkdir(exist_ok=True)
        workers = directory / "workers"
        workers.mkdir(exist_ok=True)
        self.scratch = directory / "scratch"
        self.scratch.mkdir(exist_ok=True)
        if not settings.hidden_paths:
            # Test functions report their progress in files there.
            settings = dataclasses.replace(settings, writable_paths=(tempfile.gettempdir(),))
        self._settings = ZygoteSettings(
            tuple(modules),
            str(files),
            str(workers),
            str(self.scratch),
            settings,
            restricted=restricted,
            shared_memory=shared_memory,
            model_memory_bytes=model_memory_bytes,
            generation=generation,
            is_successor=is_successor,
        )
        self._zygote: socket.socket
        self.process = self._started()

    def _started(self) -> Child:
        self._zygote, zygotes_end = packet_pair()
        with zygotes_end:
            return start_zygote(self._settings, zygotes_end)

    def restart(self) -> None:
        self._end()
        self.process = self._started()

    def retire(self) -> None:
        """Retire the zygote, as a supervisor does once a successor has started."""
        self._zygote.close()

    def connection(self) -> socket.socket:
        """Open a front's connection; raise OSError if the zygote has ended."""
        front_end, zygote_end = packet_pair()
        with zygote_end:
            try:
                socket.send_fds(self._zygote, [str(os.getpid()).encode()], [zygote_end.fileno()])
            except OSError:
                front_end.close()
                raise
        return front_end

    async def next(self) -> socket.socket:
        return self.connection()

    def stop(self) -> None:
        self._end()
        # The process that empties the trash ends a moment after its zygote, and moves files until then.
        while (trash := self.scratch / ".trash").exists():
            shutil.rmtree(trash, ignore_errors=True)

    def _end(self) -> None:
        self.process.end()
        self._zygote.close()


@asynccontextmanager
async def running_pool(
    zygotes: ZygoteSource,
    workers: int = 1,
    on_output: Callable[[WorkerOutput], None] = lambda _: None,
    on_drop: Callable[[DroppedOutput], None] = lambda _: None,
    **changes: Any,
) -> AsyncIterator[Pool]:
    pool = Pool(PoolSettings(workers=workers, zygotes=zygotes, **changes), on_output, on_drop)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close(0.0)


@dataclasses.dataclass
class Reply:
    """Result of an exchange."""

    batches: list[tuple[int, pa.RecordBatch]] = dataclasses.field(default_factory=list)
    # Entries of each batch.
    row_ends: list[list[int]] = dataclasses.field(default_factory=list)
    schema: pa.Schema | None = None
    credits: list[int] = dataclasses.field(default_factory=list)
    # None or the message; a test that reads one of them expects it.
    finish: Any = None
    error: Any = None
    log_lines: list[str] = dataclasses.field(default_factory=list)
    ending: FrameKind | None = None
    # Objects constructed before the first batch.
    loads: list[Load] = dataclasses.field(default_factory=list)
    # Parts of a batch that arrives in parts.
    parts: list[bytes] = dataclasses.field(default_factory=list)
    parted_batches: int = 0

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches([batch for _, batch in self.batches], self.schema)


def split(message: Any) -> tuple[memoryview, memoryview]:
    """Split an encapsulated IPC message into data_header and data_body."""
    view = memoryview(message)
    end = 8 + int.from_bytes(view[4:8], "little")
    return view[8:end], view[end:]


def echo_command() -> exchange_pb2.ExchangeCommand:
    return exchange_pb2.ExchangeCommand(
        protocol_version=PROTOCOL_VERSION, registered=exchange_pb2.RegisteredFunction(name="echo")
    )


def requests(batches: Iterable[pa.RecordBatch]) -> list[tuple[bytes, Any, Any]]:
    """Return the frames of a client that follows the protocol."""
    frames = []
    rows = 0
    count = 0
    for count, batch in enumerate(batches, 1):
        rows += batch.num_rows
        metadata = exchange_pb2.RequestMetadata(sequence=count).SerializeToString()
        frames.append((metadata, *split(batch.serialize())))
    finish = exchange_pb2.RequestMetadata(finish=exchange_pb2.Finish(batches=count, rows=rows))
    return [*frames, (finish.SerializeToString(), b"", b"")]


def grouped_requests(batches: Iterable[tuple[pa.RecordBatch, Sequence[int], int]]) -> list[tuple[bytes, Any, Any]]:
    """Return the same frames with the ends of groups in each batch, and the input that the batch belongs to."""
    batches = list(batches)
    frames = requests(batch for batch, _, _ in batches)
    for number, (_, ends, of_input) in enumerate(batches):
        metadata = exchange_pb2.RequestMetadata(sequence=number + 1, group_ends=ends, input=of_input)
        frames[number] = (metadata.SerializeToString(), *frames[number][1:])
    return frames


def binding_of(command: exchange_pb2.ExchangeCommand | None, modules: str = "") -> Binding:
    """Return the binding that the front would ask a pool for."""
    if command is None or not command.HasField("session"):
        return REGISTERED
    owner = command.task.owner
    return Binding(Owner("", owner.application_id, owner.session_id), modules)


async def leased(pool: Pool, task: TaskKey | None, binding: Binding) -> Lease:
    """Lease a worker as admission does, and wait for one that the pool starts for the owner."""
    while True:
        changed = asyncio.Event()
        unsubscribe = pool.subscribe(changed.set)
        try:
            return await pool.lease(task, binding)
        except NoIdleWorker:
            if pool.busy and not pool.idle + pool.starting:
                raise
            await changed.wait()
        finally:
            unsubscribe()


async def send_command(
    lease: Lease,
    schema: pa.Schema | bytes,
    command: exchange_pb2.ExchangeCommand | None,
    plain_function: str = "",
    **provided: Any,
) -> None:
    header = schema if isinstance(schema, bytes) else split(schema.serialize())[0]
    command = command or exchange_pb2.ExchangeCommand()
    session = command.session
    assignment = Assignment(
        plain=bool(plain_function),
        function_name=plain_function or command.registered.name,
        eval_type=session.eval_type,
        python_includes=list(session.python_includes),
        environment={**session.environment, **session.user_environment},
        task=command.task,
        limits=command.limits,
        **{"owner": binding_of(command).owner or (), **provided},
    )
    await FrameSender(lease.socket).send(FrameKind.COMMAND, assignment.encode(), header, command.payload)


async def send_requests(lease: Lease, frames: Iterable[tuple[bytes, Any, Any]]) -> None:
    sender = FrameSender(lease.socket)
    with suppress(PeerClosedError):
        for frame in frames:
            await sender.send(FrameKind.BATCH, *frame)
        await sender.send(FrameKind.END)


async def receive_reply(lease: Lease) -> Reply:
    receiver = FrameReceiver(lease.socket, max_payload_bytes=2**31)
    lease.death.add_done_callback(lambda _: receiver.peer_is_gone())
    reply = Reply()
    while True:
        frame = await receiver.receive()
        if frame.kind is FrameKind.LOADING:
            reply.loads.append(Load.decode(bytes(frame.app_metadata)))
            assert (await receiver.receive()).kind is FrameKind.LOADED
        elif frame.kind is FrameKind.MESSAGE:
            _take_message(reply, frame)
        else:
            reply.ending = frame.kind
            if frame.kind in (FrameKind.FAILED, FrameKind.CRASHED):
                reply.error = exchange_pb2.Error.FromString(bytes(frame.app_metadata))
            return reply


def _take_message(reply: Reply, frame: Any) -> None:
    metadata = exchange_pb2.ReplyMetadata.FromString(bytes(frame.app_metadata))
    event = metadata.WhichOneof("event")
    reply.log_lines += metadata.log_lines
    if event == "finish":
        reply.finish = metadata.finish
    elif event == "part":
        assert metadata.part.offset == sum(map(len, reply.parts))
        reply.parts.append(bytes(frame.data_body))
    elif len(frame.data_header) == 0:
        reply.credits.append(metadata.consumed)
    else:
        header = bytes(frame.data_header)
        body = b"".join(reply.parts) + bytes(frame.data_body)
        reply.parted_batches += bool(reply.parts)
        reply.parts.clear()
        data = b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + body
        message = pa.ipc.read_message(pa.py_buffer(data))
        if message.type == "schema":
            assert reply.schema is None
            reply.schema = pa.ipc.read_schema(message)
        else:
            assert event == "sequence"
            reply.row_ends.append(list(metadata.row_ends))
            reply.batches.append((metadata.sequence, pa.ipc.read_record_batch(message, reply.schema)))


async def exchange(
    pool: Pool,
    batches: Iterable[pa.RecordBatch],
    command: exchange_pb2.ExchangeCommand | None = None,
    schema: pa.Schema | None = None,
    task: TaskKey | None = None,
    **provided: Any,
) -> Reply:
    """Run one whole exchange, from lease to release; `provided` are the fields that the front fills in `Assignment`."""
    batches = list(batches)
    return await raw_exchange(
        pool, schema or batches[0].schema, requests(batches), command or echo_command(), task=task, **provided
    )


async def raw_exchange(
    pool: Pool,
    schema: pa.Schema | bytes,
    frames: Iterable[tuple[bytes, Any, Any]],
    command: exchange_pb2.ExchangeCommand | None,
    plain_function: str = "",
    task: TaskKey | None = None,
    modules: str = "",
    binding: Binding | None = None,
    **provided: Any,
) -> Reply:
    """Run an exchange with these frames; raise PeerClosedError if the worker dies."""
    lease = await leased(pool, task, binding or binding_of(command, modules))
    outcome = LeaseOutcome.BROKEN
    sending = None
    try:
        await send_command(lease, schema, command, plain_function, **provided)
        sending = asyncio.create_task(send_requests(lease, frames))
        reply = await receive_reply(lease)
        assert reply.ending is not None
        outcome = _OUTCOMES[reply.ending]
        return reply
    finally:
        if sending is not None:
            sending.cancel()
            await asyncio.wait([sending])
        lease.release(outcome)


def pid_of(pool: Pool, worker: str) -> int:
    """Return the process id of a worker, which runs on this machine in a test."""
    return next(info.pid for info in pool.workers if info.worker == worker)


async def answers(pool: Pool) -> None:
    """Check that the pool has a working worker."""
    await until(pool, lambda: pool.idle > 0)
    assert (await exchange(pool, batches_of([1]))).error is None


def numbers(rows: int, start: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(start, start + rows), pa.int64())], ["_0"])


def batches_of(sizes: Iterable[int]) -> list[pa.RecordBatch]:
    starts = itertools.accumulate([0, *sizes])
    return [numbers(rows, start) for rows, start in zip(sizes, starts, strict=False)]
