# SPDX-License-Identifier: Apache-2.0
"""Writer that serves in a thread of the test, on ports that the system chooses, and its clients."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import flight

from updraft.client.writer import WriterClient
from updraft.flight_data import join_flight_data, split_flight_data
from updraft.protocol import PROTOCOL_VERSION
from updraft.service.lifecycle import Event, Phase
from updraft.v1.exchange_pb2 import Finish
from updraft.v1.write_pb2 import (
    Ask,
    Delivery,
    ParquetOptions,
    WriteCommand,
    WriteReplyMetadata,
    WriteRequestMetadata,
)
from updraft_writer.pieces import Piece
from updraft_writer.settings import ServeSettings
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.writer import Writer

# Reached only if something hangs.
WITHIN_SECONDS = 60.0
NOTHING = memoryview(b"")
SCHEMA = pa.schema({"n": pa.int64()})
BATCH = pa.record_batch({"n": pa.array(range(1000), pa.int64())})
BATCH_BYTES = 8000


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {WITHIN_SECONDS:g} seconds"
        time.sleep(0.005)


class RunningWriter:
    """Serving writer; `root` is where it may write, unless `storage` names another root."""

    def __init__(self, root: Path, *, storage: str = "", **changes: Any) -> None:
        self.root = root
        values = {
            "listen": "127.0.0.1:0",
            "admin_listen": "",
            "metrics_listen": "",
            "root": (storage or str(root),),
            "quota_bytes": 64 << 20,
            **changes,
        }
        self.settings = ServeSettings(**values).with_free_ports()
        self._made = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._made.wait(WITHIN_SECONDS)
        wait_for(lambda: self.writer.lifecycle.phase is not Phase.STARTING, "the start")

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.writer = Writer(self.settings)
        self._made.set()
        await self.writer.run()

    @property
    def address(self) -> str:
        return self.settings.listen

    def client(self, **options: Any) -> WriterClient:
        return WriterClient(self.address, **{"timeout_seconds": WITHIN_SECONDS, **options})

    def drain(self) -> None:
        self._loop.call_soon_threadsafe(self.writer.lifecycle.handle, Event.DRAIN_REQUESTED)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Keep the writer's event loop from running."""
        free = threading.Event()
        self._loop.call_soon_threadsafe(free.wait, WITHIN_SECONDS)
        try:
            yield
        finally:
            free.set()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.drain()
            self._thread.join(WITHIN_SECONDS)
        assert not self._thread.is_alive()

    def files(self) -> list[str]:
        """Return all files below the root, including hidden ones."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    def becomes_empty(self) -> None:
        """Wait until nothing is held, no request waits and no file is open."""
        quota = self.writer.quota
        wait_for(
            lambda: (quota.held_bytes, quota.reservations, quota.waiting, len(self.writer.files)) == (0, 0, 0, 0),
            "the release of everything",
        )


@contextmanager
def running_writer(
    root: Path, *, constants: Mapping[str, object] = MappingProxyType({}), **changes: Any
) -> Iterator[RunningWriter]:
    """Run a writer that must hold nothing at its end and leave no unfinished file.

    `constants` are values for constants below `updraft_writer` while it runs. `row_group_bytes` among `changes` is the
    size of row groups of clients that name none.
    """
    row_group_bytes = changes.pop("row_group_bytes", 1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("updraft_writer.file_factory.DEFAULT_ROW_GROUP_BYTES", row_group_bytes)
        for name, value in constants.items():
            patch.setattr(f"updraft_writer.{name}", value)
        writer = RunningWriter(root, **changes)
        try:
            yield writer
            writer.becomes_empty()
            assert not [name for name in writer.files() if name.endswith(".updraft")]
        finally:
            writer.stop()


def command(path: Path | str, **changes: Any) -> WriteCommand:
    values: dict[str, Any] = {
        "protocol_version": PROTOCOL_VERSION,
        "path": str(path),
        "delivery": Delivery.DELIVERY_DIRECT,
        "parquet": ParquetOptions(),
        **changes,
    }
    return WriteCommand(**values)


class RawExchange:
    """Exchange of single messages, which may break the protocol."""

    def __init__(
        self, address: str, schema: pa.Schema, to_do: WriteCommand, *, timeout_seconds: float = WITHIN_SECONDS
    ) -> None:
        self._schema = schema
        self._requests: queue.Queue[bytes | None] = queue.Queue()
        self._channel = grpc.insecure_channel(address)
        self.call: Any = self._channel.stream_stream("/arrow.flight.protocol.FlightService/DoExchange")(
            iter(self._requests.get, None), timeout=timeout_seconds
        )
        header = memoryview(pa.ipc.read_message(schema.serialize()).metadata).cast("B")
        descriptor = flight.FlightDescriptor.for_command(to_do.SerializeToString()).serialize()
        self.send(join_flight_data(header, b"", NOTHING, descriptor=bytes(descriptor)))

    def send(self, message: bytes) -> None:
        self._requests.put(message)

    def say(self, **event: Any) -> None:
        self.send(join_flight_data(NOTHING, WriteRequestMetadata(**event).SerializeToString(), NOTHING))

    def ask(self, body_bytes: int) -> None:
        self.say(ask=Ask(body_bytes=body_bytes))

    def batch(self, sequence: int, data: pa.RecordBatch) -> None:
        message = pa.ipc.read_message(data.serialize())
        metadata = WriteRequestMetadata(sequence=sequence).SerializeToString()
        self.send(
            join_flight_data(memoryview(message.metadata).cast("B"), metadata, memoryview(message.body).cast("B"))
        )

    def finish(self, batches: int, rows: int) -> None:
        self.say(finish=Finish(batches=batches, rows=rows))

    def half_close(self) -> None:
        self._requests.put(None)

    def next_reply(self) -> WriteReplyMetadata:
        return WriteReplyMetadata.FromString(bytes(split_flight_data(next(self.call)).app_metadata))

    def last_reply(self) -> WriteReplyMetadata:
        """Return the last message before the status."""
        last = WriteReplyMetadata()
        try:
            while True:
                last = self.next_reply()
        except (StopIteration, grpc.RpcError):
            return last

    def close(self) -> None:
        self._requests.put(None)
        self._channel.close()

    def __enter__(self) -> "RawExchange":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def write(writer: RunningWriter, path: Path, *rows: pa.RecordBatch | pa.Table, then: Exception | None = None) -> None:
    """Write a file through a client; with `then`, the producer fails after the last rows."""
    with writer.client() as client, client.create(str(path), rows[0].schema) as file:
        for data in rows:
            file.write(data)
        if then is not None:
            raise then


def read(path: Path) -> list[int]:
    rows: list[int] = pq.read_table(path)["n"].to_pylist()
    return rows


class Gate:
    """Gate at which a step of a storage waits for the test."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        """Wait at the gate until the test opens it."""
        self.reached.set()
        assert self.opened.wait(WITHIN_SECONDS)


class GatedStorage(LocalStorage):
    """Storage that holds every piece until the test opens the gate, or with `at` = publish only the publication."""

    def __init__(self, path: Path, gate: Gate, at: str) -> None:
        super().__init__(path)
        self._gate = gate
        self._at = at

    def write(self, piece: Piece) -> None:
        if self._at == "write":
            self._gate.pass_through()
        super().write(piece)

    def publish(self) -> None:
        if self._at == "publish":
            self._gate.pass_through()
        super().publish()


@contextmanager
def gated_storage(writer: RunningWriter, *, at: str = "write") -> Iterator[Gate]:
    """Give a writer storages with a gate before a step; the gate is open at the end."""
    gate = Gate()
    writer.writer.factory.storage = lambda path, *_, **__: GatedStorage(Path(path), gate, at)
    try:
        yield gate
    finally:
        gate.opened.set()
