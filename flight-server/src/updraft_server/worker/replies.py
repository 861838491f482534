# SPDX-License-Identifier: Apache-2.0
"""Conversion of the batches that a function yields into replies, and slices of batches.

Rows outside a slice must not affect what a function sees. When pyarrow converts a map for pandas, the result depends on
the whole array, including rows outside the slice. If one of those rows had a null, a function would get floats where
stock PySpark gives it integers. So `slicer` copies the rows of each slice if a column contains maps.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, Protocol, TypeAlias

import pyarrow as pa

from updraft.arrow_bytes import data_bytes
from updraft.errors import UpdraftError, UserError


def slicer(batch: pa.RecordBatch) -> Callable[[int, int], pa.RecordBatch]:
    """Return a function that slices the batch by first row and number of rows, and copies if a column contains maps."""
    if any(map(_holds_map, batch.schema.types)):
        return lambda start, rows: pa.concat_batches([batch.slice(start, rows)])
    return batch.slice  # type: ignore[no-any-return]


def slice_by_rows(batch: pa.RecordBatch, max_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices of at most `max_rows` rows; 0 means no limit."""
    if not max_rows or batch.num_rows <= max_rows:
        yield batch
        return
    rows_from = slicer(batch)
    for start in range(0, batch.num_rows, max_rows):
        yield rows_from(start, min(max_rows, batch.num_rows - start))


def _holds_map(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _holds_map(data_type.storage_type)
    children = [data_type.field(index).type for index in range(data_type.num_fields)]
    return pa.types.is_map(data_type) or any(map(_holds_map, children))


_JOINED_BYTES = 512 * 1024
_JOINED_BATCHES = 4096


class ReplyChannel(Protocol):
    """Destination of replies, such as `updraft_server.worker.exchange.Exchange`."""

    max_records_per_reply: int
    """Most rows in one reply of a free-running function; 0 means no limit."""
    max_bytes_per_reply: int
    """Size in bytes above which a reply of a free-running function is split."""

    def reply(self, batch: pa.RecordBatch, *, sequence: int, row_ends: Sequence[int] = ()) -> None:
        """Send a batch."""

    def fail(self, error: UpdraftError) -> NoReturn:
        """Raise the error that ends the exchange."""


class FreeRunningReplies:
    """Replies of a free-running function, which may yield any number of batches for a request.

    Each batch becomes one reply, or several replies if the batch is too large for one.
    """

    def __init__(self, exchange: ReplyChannel) -> None:
        self._exchange = exchange
        self._sequence = 0

    def requested(self, sequence: int, rows: int) -> None:
        """Do nothing: a free-running function owes no reply for a request."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Send a batch that the function has yielded; raises UpdraftError."""
        self._send(batch)

    def _send(self, batch: pa.RecordBatch) -> None:
        for part in self._parts(batch):
            self._reply(part)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for rows in slice_by_rows(batch, self._exchange.max_records_per_reply):
            yield from split_by_bytes(rows, self._exchange.max_bytes_per_reply)

    def _reply(self, part: pa.RecordBatch, row_ends: Sequence[int] = ()) -> None:
        self._sequence += 1
        self._exchange.reply(part, sequence=self._sequence, row_ends=row_ends)

    def flush(self) -> None:
        """Do nothing: every batch was sent at once."""

    def close(self) -> None:
        """Do nothing: every batch was sent at once."""


class JoinedReplies(FreeRunningReplies):
    """Replies that join small batches. A message for each small group would cost more than the group's work."""

    def __init__(self, exchange: ReplyChannel) -> None:
        super().__init__(exchange)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold the batch. Send all held batches when they have enough bytes, or when there are enough of them."""
        if self._held and not batch.schema.equals(self._held[0].schema):
            self.flush()
        # A batch without rows serves only to send its schema, which the held batches contain already.
        if self._held and not batch.num_rows:
            return
        self._held.append(batch)
        self._held_bytes += data_bytes(batch)
        if self._held_bytes >= _JOINED_BYTES or len(self._held) >= _JOINED_BATCHES:
            self.flush()
        else:
            self._held[-1] = _owned(batch)

    def flush(self) -> None:
        """Send the held batches."""
        if self._held:
            held, self._held, self._held_bytes = self._held, [], 0
            self._send(held[0] if len(held) == 1 else pa.concat_batches(held))

    def close(self) -> None:
        """Send the remaining batches."""
        self.flush()


class OutputReplies(JoinedReplies):
    """Replies of a function that yields one batch for each input row. A reply includes the ends of these outputs."""

    def __init__(self, exchange: ReplyChannel) -> None:
        super().__init__(exchange)
        self._ends: list[int] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold the output of one input row. Send all held outputs when there are enough."""
        self._rows += batch.num_rows
        self._ends.append(self._rows)
        super().add(batch)
        if len(self._ends) >= _JOINED_BATCHES:
            self.flush()

    def _send(self, batch: pa.RecordBatch) -> None:
        ends, self._ends, self._rows = self._ends, [], 0
        for part, own in _with_ends(self._parts(batch), ends):
            self._reply(part, own)


class TableReplies(FreeRunningReplies):
    """Replies of a function whose batches contain the outputs of many input rows, with given row ends."""

    def add_output(self, batch: pa.RecordBatch, row_ends: Sequence[int]) -> None:
        """Send a batch with its row ends; raises UpdraftError."""
        for part, own in _with_ends(self._parts(batch), row_ends):
            self._reply(part, own)


class OneToOneReplies:
    """One reply for each request, in order, with as many rows as the request owes.

    The function may divide its results into batches of any size, and may read requests ahead. So this class collects
    results, and sends the reply to a request when the results of that request are complete. Up to `ahead` result rows
    may arrive before their request: PySpark returns a group's value even if the function has not read the whole group.
    """

    def __init__(self, exchange: ReplyChannel, *, ahead: int = 0) -> None:
        self._exchange = exchange
        self._ahead = ahead
        self._owed: deque[tuple[int, int]] = deque()
        self._ready: deque[pa.RecordBatch] = deque()
        self._ready_rows = 0
        self._schema: pa.Schema | None = None

    def requested(self, sequence: int, rows: int) -> None:
        """Record that the function owes a reply of `rows` rows."""
        self._owed.append((sequence, rows))

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of results, and send every reply that they complete."""
        self._schema = batch.schema
        if batch.num_rows:
            self._ready.append(batch)
            self._ready_rows += batch.num_rows
        self._send_complete()
        if batch.num_rows and self._ready:
            self._ready[-1] = _owned(self._ready[-1])
        if not self._owed and self._ready_rows > self._ahead:
            self._fail_of_more()

    def flush(self) -> None:
        """Send replies that are complete because their rows arrived before their request."""
        self._send_complete()

    def close(self) -> None:
        """Send the remaining replies; raises UserError if rows are missing or left over."""
        self._send_complete()
        if self._owed:
            sequence, rows = self._owed[0]
            self._exchange.fail(
                UserError(
                    f"the function ended with {self._ready_rows} of the {rows} rows of batch {sequence}:"
                    " it must yield one row for each input row"
                )
            )
        if self._ready_rows:
            self._fail_of_more()

    def _fail_of_more(self) -> NoReturn:
        self._exchange.fail(UserError(f"the function yielded {self._ready_rows} more rows than it was given"))

    def _send_complete(self) -> None:
        while self._owed and self._schema is not None and self._ready_rows >= self._owed[0][1]:
            sequence, rows = self._owed.popleft()
            batch = self._cut(rows) if rows else pa.RecordBatch.from_pylist([], schema=self._schema)
            self._exchange.reply(batch, sequence=sequence)

    def _cut(self, rows: int) -> pa.RecordBatch:
        """Remove and return the first `rows` ready rows."""
        parts: list[pa.RecordBatch] = []
        missing = rows
        while missing:
            batch = self._ready.popleft()
            if batch.num_rows > missing:
                self._ready.appendleft(batch.slice(missing))
                batch = batch.slice(0, missing)
            parts.append(batch)
            missing -= batch.num_rows
        self._ready_rows -= rows
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


Replies: TypeAlias = FreeRunningReplies | OneToOneReplies
"""Consumer of a function's results, in order."""


def _with_ends(
    parts: Iterable[pa.RecordBatch], row_ends: Iterable[int]
) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
    """Yield each part of a batch with the row ends in that part, as offsets from the part's first row."""
    ends = deque(row_ends)
    start = 0
    for part in parts:
        stop = start + part.num_rows
        own = []
        while ends and ends[0] <= stop:
            own.append(ends.popleft() - start)
        yield part, own
        start = stop


def _owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a batch to hold: the function may own the batch's memory and reuse that memory for other values.

    The copy contains only the rows of the batch. `copy_to` would copy more: results are often slices of the arguments,
    and `copy_to` copies the arguments' buffers up to their ends.
    """
    return pa.concat_batches([batch])


def split_by_bytes(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices of about `max_bytes`, measured as IPC messages. Never split a single row."""
    size_bytes = pa.ipc.get_record_batch_size(batch)
    if size_bytes <= max_bytes or batch.num_rows <= 1:
        yield batch
        return
    rows = max(1, batch.num_rows // math.ceil(size_bytes / max_bytes))
    for start in range(0, batch.num_rows, rows):
        yield from split_by_bytes(batch.slice(start, rows), max_bytes)
