# SPDX-License-Identifier: Apache-2.0
"""Pool of pinned memory, into which row groups are copied so that the device can read them without the CPU.

The pool is bounded. Several threads copy a row group into the pool, part by part. A part leaves the pool when the
device has copied the part, and encoding begins after the last part has left. So the staged and the encoded bytes of a
row group never exist at the same time, and the row group's reservation for encoded bytes also covers the staged bytes.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import structlog

from updraft_writer.gpu.engine import DeviceMemoryError

# Size of a part: large enough that starting a copy takes a small share of the copy's time, and small enough that parts
# of several row groups fit into the pool. A batch from Spark has 8 MiB or less.
BLOCK_BYTES = 16 << 20
# Maximum size of the pool. Each of the files that are encoded at once has a few parts in the pool.
_LARGEST_POOL_BYTES = 16 * BLOCK_BYTES
_POOL_FRACTION = 1 / 32
# Number of threads that copy. A GPU copies from pinned memory faster than one thread can fill it.
_THREADS = 4
# Bytes of a part besides its schema and batches: the markers of Arrow's format.
_MARKS_BYTES = 64

_log = structlog.get_logger(__name__)


def pool_bytes(limit_bytes: int) -> int:
    """Return the bytes of the pool for a process that may use `limit_bytes` of memory."""
    blocks = min(_LARGEST_POOL_BYTES, int(_POOL_FRACTION * limit_bytes)) // BLOCK_BYTES
    return blocks * BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class _Staged:
    """Part of a row group, and the block into which the part is copied. Without a block, the part is not copied."""

    part: "Future[pa.Table]"
    block: memoryview | None


class Staging:
    """Pool of pinned blocks, allocated on demand, and the threads that fill the blocks. Any thread may use the pool."""

    def __init__(
        self,
        allocate: Callable[[int], memoryview],
        most_bytes: int = _LARGEST_POOL_BYTES,
        *,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.pinned_bytes = 0
        """Size of the pool so far. The pool never frees memory, because pinning takes long and stops the device."""
        self._allocate = allocate
        self._most_bytes = most_bytes
        self._block_bytes = block_bytes
        self._free: list[memoryview] = []
        self._changed = threading.Condition()
        self._threads = ThreadPoolExecutor(_THREADS, "stage")

    @property
    def idle_bytes(self) -> int:
        """Bytes of the blocks that hold no part."""
        return len(self._free) * self._block_bytes

    def close(self) -> None:
        """End the threads without waiting for their running copies."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def parts(self, table: pa.Table) -> Generator[pa.Table]:
        """Yield the rows of a table in order, in parts. Each new part reuses the memory of the previous part.

        A row that exceeds a block is not copied into the pool. If the device cannot pin memory, no row is copied.
        """
        ahead: deque[_Staged] = deque()
        try:
            for part, size in self._cut(table):
                # Wait for a block only if this file holds no block. Otherwise two files could wait for each other.
                while (block := self._take(size, wait=not ahead)) is None and ahead:
                    yield from self._finished(ahead)
                ahead.append(self._staged(part, block))
                if len(ahead) > _THREADS:
                    yield from self._finished(ahead)
            while ahead:
                yield from self._finished(ahead)
        finally:
            for staged in ahead:
                self._give_back(staged)

    def _finished(self, ahead: deque[_Staged]) -> Iterator[pa.Table]:
        staged = ahead.popleft()
        try:
            yield staged.part.result()
        finally:
            self._give_back(staged)

    def _staged(self, part: pa.Table, block: memoryview | None) -> _Staged:
        if block is not None:
            return _Staged(self._threads.submit(_copied, part, block), block)
        unmoved: Future[pa.Table] = Future()
        unmoved.set_result(part)
        return _Staged(unmoved, None)

    def _take(self, wanted_bytes: int, *, wait: bool) -> memoryview | None:
        """Return a block, or None if no block has room for `wanted_bytes`.

        If all blocks are in use, wait for a free one with `wait`; without `wait`, return None.
        """
        with self._changed:
            while wanted_bytes <= self._block_bytes <= self._most_bytes:
                if self._free:
                    return self._free.pop()
                if self.pinned_bytes + self._block_bytes <= self._most_bytes:
                    self._pin()
                elif wait:
                    self._changed.wait()
                else:
                    break
        return None

    def _pin(self) -> None:
        try:
            self._free.append(self._allocate(self._block_bytes))
            self.pinned_bytes += self._block_bytes
        except DeviceMemoryError as error:
            self._most_bytes = self.pinned_bytes
            _log.warning(
                "cannot pin more memory: copies to the GPU are slower", pinned=self.pinned_bytes, error=str(error)
            )

    def _give_back(self, staged: _Staged) -> None:
        if staged.block is None:
            return
        if not staged.part.cancel():
            # The thread may still write to the block.
            staged.part.exception()
        with self._changed:
            self._free.append(staged.block)
            self._changed.notify()

    def _cut(self, table: pa.Table) -> Iterator[tuple[pa.Table, int]]:
        """Yield runs of consecutive batches, each small enough for one block, with the run's size in Arrow's format."""
        least_bytes = table.schema.serialize().size + _MARKS_BYTES
        together: list[pa.RecordBatch] = []
        total_bytes = least_bytes
        for batch, size in self._halved(table.to_batches(), self._block_bytes - least_bytes):
            if together and total_bytes + size > self._block_bytes:
                yield pa.Table.from_batches(together, table.schema), total_bytes
                together, total_bytes = [], least_bytes
            together.append(batch)
            total_bytes += size
        yield pa.Table.from_batches(together, table.schema), total_bytes

    def _halved(self, batches: list[pa.RecordBatch], room_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        for batch in batches:
            size: int = pa.ipc.get_record_batch_size(batch)
            if size <= room_bytes or batch.num_rows < 2:
                yield batch, size
            else:
                half = batch.num_rows // 2
                yield from self._halved([batch.slice(0, half), batch.slice(half)], room_bytes)


def _copied(part: pa.Table, block: memoryview) -> pa.Table:
    """Copy a part into a block in Arrow's format, which trims slices. Return a table whose rows lie in the block."""
    memory = pa.py_buffer(block)
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(memory), part.schema) as stream:
        stream.write_table(part)
    return pa.ipc.open_stream(memory).read_all()
