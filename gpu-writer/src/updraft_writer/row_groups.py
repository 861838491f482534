# SPDX-License-Identifier: Apache-2.0
"""Policy for joining batches into row groups, and for choosing partial row groups to flush when memory is short."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from updraft.errors import LimitError
from updraft_writer.quota import Reservation

_SMALLEST_ROW_GROUP_BYTES = 64 * 1024
# Limit on the number of row groups that are cut at a client's row limit. The footer describes each column of each row
# group and stays in memory until the file ends, and Parquet counts row groups in 16 bits. Row groups that are cut at a
# size need no such limit, because many bytes have to arrive for each row group.
_MAX_CUT_ROW_GROUPS = (1 << 15) - 1

# Memory that the encoder may need for each byte of the target size, because it converts a whole column at once. The
# encoder needs about this much for each byte of small integers, so only row groups in which nearly all values are
# booleans or have no bytes are cut early.
_ENCODING_BYTES_PER_TARGET_BYTE = 4

# Limit on the memory for encoding one row, in addition to the row's bytes. The writer does not reserve this memory, and
# cannot cut a row.
_LARGEST_ROW_BYTES = 64 << 20

# Each credit also covers memory for values without bytes: the quota divided by this number, within the bounds below.
# Several batches with values without bytes therefore fit into the quota.
_ALLOWANCES_PER_QUOTA = 4
_SMALLEST_ALLOWANCE_BYTES, _LARGEST_ALLOWANCE_BYTES = 1 << 20, 64 << 20

# Cost of a boolean in a list while it is encoded; `updraft.arrow_cost` uses the same number.
_BYTES_PER_BOOLEAN = 6

# The raw and the encoded bytes of a row group exist together until the raw bytes are freed, so both are reserved.
_BYTES_PER_RAW_BYTE = 2


def reserved_bytes(raw_bytes: int) -> int:
    """Return the bytes to reserve for a batch: its own bytes, and as many again for its encoded form."""
    return _BYTES_PER_RAW_BYTE * raw_bytes


def batch_limit(
    max_batch_bytes: int, max_message_bytes: int, *, quota_bytes: int, cap_bytes: int | None
) -> tuple[int, str]:
    """Return the most bytes of Arrow data in a batch that comes in parts, and the setting to raise for larger batches.

    The limit is the smallest of the operator's limit, the room in the quota, and the room in the tenant's cap. A batch
    that fits into one message is allowed even if it exceeds the quota: it is admitted alone, and the limit on messages
    bounds its size.
    """
    times = reserved_bytes(1)
    rooms = [(quota_bytes, "--quota-bytes of the writer")]
    if cap_bytes is not None:
        rooms.append((cap_bytes, "max_quota_bytes of the tenant"))
    limits = [
        (max(max_message_bytes, room_bytes // times), f"{setting} to {times} times the batch")
        for room_bytes, setting in rooms
    ]
    return min((max_batch_bytes, "--max-batch-bytes of the writer"), *limits, key=lambda limit: limit[0])


def unbacked_allowance_bytes(quota_bytes: int) -> int:
    """Return the additional bytes that a credit covers if the schema of its batch contains values without bytes."""
    return min(_LARGEST_ALLOWANCE_BYTES, max(_SMALLEST_ALLOWANCE_BYTES, quota_bytes // _ALLOWANCES_PER_QUOTA))


def check_unbacked(sequence: int, unbacked_bytes: int, allowance_bytes: int) -> None:
    """Raise LimitError if a batch needs more memory for values without bytes than its credit covers."""
    if unbacked_bytes > allowance_bytes:
        raise LimitError(
            f"batch {sequence} needs {unbacked_bytes} bytes of memory for values that take none in Arrow (null, "
            f"structs without fields), the limit is {allowance_bytes}: send fewer rows at once, or shorter lists"
        )


@dataclass(slots=True)
class RowGroup:
    """Batches that are encoded together, and their reservation, which the owner of the row group releases."""

    reservation: Reservation
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    raw_bytes: int = 0
    encoding_bytes: int = 0

    def append(self, batch: pa.RecordBatch, raw_bytes: int, encoding_bytes: int) -> None:
        """Add a batch or a slice of a batch."""
        self.encoding_bytes += encoding_bytes
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.raw_bytes += raw_bytes

    def join(self, following: "RowGroup") -> None:
        """Take over the batches and the reservation of the next row group, which is then empty."""
        self.batches += following.batches
        self.rows += following.rows
        self.raw_bytes += following.raw_bytes
        self.encoding_bytes += following.encoding_bytes
        following.batches = []
        self.reservation.absorb(following.reservation)

    def take_table(self, schema: pa.Schema) -> pa.Table:
        """Return the batches as a table, without a copy. The row group drops its batches, so they can be freed."""
        batches, self.batches = self.batches, []
        return pa.Table.from_batches(batches, schema)


class ListedBooleans:
    """Positions of the booleans in the lists of a batch.

    The batch must be complete, as received, not a slice. A boolean takes a bit in a batch, but several bytes while it
    is encoded. A row may contain any number of booleans in lists, so row groups are also cut by the cost of booleans.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        rows = pa.arange(0, batch.num_rows + 1, 1)
        self._ends = [ends for column in batch.columns for ends in _ends(column, rows, is_listed=False)]
        self._rows: int = batch.num_rows

    def rows_within(self, start: int, limit_bytes: int) -> int:
        """Count the rows from `start` that cost at most `limit_bytes` in each column; at least 1 if any row is left."""
        stop: int = self._rows
        for ends in self._ends:
            stop = _last_row(ends, ends[start].as_py() + limit_bytes // _BYTES_PER_BOOLEAN, start, stop)
        return max(stop - start, min(1, self._rows - start))

    def cost_bytes(self, start: int, rows: int) -> int:
        """Return the cost of `rows` rows from `start` in the most expensive column."""
        counts = (int(ends[start + rows].as_py() - ends[start].as_py()) for ends in self._ends)
        return _BYTES_PER_BOOLEAN * max(counts, default=0)


class RowGroupBuilder:
    """Builder that joins the batches of one file until a row group has enough bytes or rows."""

    def __init__(self, *, max_rows: int) -> None:
        self._max_rows = max_rows
        self._rows = 0
        self._partial: RowGroup | None = None

    @property
    def partial_bytes(self) -> int:
        """Bytes held by the row group that is being filled."""
        return self._partial.reservation.held_bytes if self._partial else 0

    def add(
        self,
        batch: pa.RecordBatch,
        reservation: Reservation,
        *,
        raw_bytes: int,
        target_bytes: int,
        encoding_bytes: int = 0,
    ) -> list[RowGroup]:
        """Add a batch and its reservation; return the row groups that are now full.

        `encoding_bytes` is the memory that encoding briefly needs in addition to the batch's bytes (`arrow_cost`).
        Raises LimitError if the file would have too many row groups, or if encoding a row would need too much memory.
        In that case, the builder has taken over neither the batch nor the reservation.
        """
        self._rows += batch.num_rows
        if self._rows // self._max_rows > _MAX_CUT_ROW_GROUPS:
            raise LimitError(
                f"with {self._max_rows} rows for each row group (row_group_rows), the file would have more than the "
                f"limit of {_MAX_CUT_ROW_GROUPS} row groups: ask for larger row groups, or write more files"
            )
        listed = ListedBooleans(batch) if encoding_bytes > _ENCODING_BYTES_PER_TARGET_BYTE * target_bytes else None
        if listed is not None:
            self._check_rows(listed, batch.num_rows)
        full: list[RowGroup] = []
        bytes_per_row = raw_bytes / max(1, batch.num_rows)
        encoding_bytes_per_row = encoding_bytes / max(1, batch.num_rows)
        most_encoding_bytes = _ENCODING_BYTES_PER_TARGET_BYTE * target_bytes
        most_rows = self._max_rows
        if encoding_bytes > most_encoding_bytes:
            most_rows = max(1, min(most_rows, int(most_encoding_bytes / encoding_bytes_per_row)))
            full += self.seal()
        partial = self._filling(reservation)
        start = 0
        while batch.num_rows > (
            room := min(
                most_rows - partial.rows, listed.rows_within(start, most_encoding_bytes) if listed else most_rows
            )
        ):
            start += room
            partial.append(batch.slice(0, room), int(bytes_per_row * room), int(encoding_bytes_per_row * room))
            batch = batch.slice(room)
            full += self.seal()
            partial = self._filling(reservation)
        partial.append(batch, int(bytes_per_row * batch.num_rows), int(encoding_bytes_per_row * batch.num_rows))
        # Each slice keeps the whole batch's memory alive, so the row group of the last slice holds the reservation.
        partial.reservation.absorb(reservation)
        is_costly = partial.encoding_bytes >= most_encoding_bytes
        if partial.raw_bytes >= target_bytes or partial.rows == self._max_rows or is_costly:
            full += self.seal()
        return full

    @staticmethod
    def _check_rows(listed: ListedBooleans, rows: int) -> None:
        """Raise LimitError if a row would cost too much to encode, because a row cannot be cut."""
        row = 0
        while row < rows:
            within = listed.rows_within(row, _LARGEST_ROW_BYTES)
            if (cost_bytes := listed.cost_bytes(row, within)) > _LARGEST_ROW_BYTES:
                raise LimitError(
                    f"the booleans in the lists of a row take {cost_bytes} bytes while they are encoded, the limit is "
                    f"{_LARGEST_ROW_BYTES}: send shorter lists, or numbers"
                )
            row += within

    def seal(self) -> list[RowGroup]:
        """End the partial row group and return it, if there is one."""
        partial, self._partial = self._partial, None
        return [partial] if partial else []

    def _filling(self, reservation: Reservation) -> RowGroup:
        if self._partial is None:
            self._partial = RowGroup(reservation.sibling())
        return self._partial


def row_group_target_bytes(wanted_bytes: int, *, quota_bytes: int, open_files: int) -> int:
    """Return the raw bytes of a row group: `wanted_bytes`, or less if many open files share a small quota.

    If all files fill a row group at once, these row groups take half of the quota. The other half is for row groups
    that are being encoded and stored.
    """
    fair_bytes = quota_bytes // (2 * _BYTES_PER_RAW_BYTE * max(1, open_files))
    return max(_SMALLEST_ROW_GROUP_BYTES, min(wanted_bytes, fair_bytes))


def stripe_target_bytes(wanted_bytes: int, *, quota_bytes: int, max_files: int, granted: Sequence[int]) -> int:
    """Return the raw bytes of a file's stripes: `wanted_bytes`, or less if there is not enough room.

    An encoder keeps a stripe until the stripe is full, even if other files need the memory. The stripe size is fixed
    when a file opens. All stripes, including the `granted` stripes of the other open files, stay within half of the
    quota. A quarter of the quota is divided into equal parts, one for each of `max_files` files. A new file receives
    the larger of its own part and half of the bytes that are neither granted nor kept for other files.
    """
    equal_bytes = quota_bytes // 4 // max_files
    kept_bytes = equal_bytes * (max_files - len(granted) - 1)
    left_bytes = quota_bytes // 2 - sum(granted) - kept_bytes
    return max(_SMALLEST_ROW_GROUP_BYTES, min(wanted_bytes, max(equal_bytes, left_bytes // 2)))


class Partial(Protocol):
    """Owner of a partial row group."""

    @property
    def partial_bytes(self) -> int:
        """Bytes that stay held until the row group is full or flushed."""


Owner = TypeVar("Owner", bound=Partial)


def to_flush(owners: Iterable[Owner], *, missing_bytes: int) -> list[Owner]:
    """Return the owners, those with the largest row groups first, that must flush to free `missing_bytes`."""
    chosen: list[Owner] = []
    for owner in sorted(owners, key=lambda owner: owner.partial_bytes, reverse=True):
        if missing_bytes <= 0 or not owner.partial_bytes:
            break
        chosen.append(owner)
        missing_bytes -= owner.partial_bytes
    return chosen


def _last_row(ends: pa.Array, most: int, start: int, stop: int) -> int:
    """Return the last row, from `start` to `stop`, that has at most `most` values before it."""
    return bisect_right(range(stop + 1), most, lo=start, key=lambda row: ends[row].as_py()) - 1


def _ends(array: pa.Array, rows: pa.Array, *, is_listed: bool) -> Iterator[pa.Array]:
    """Yield, for each leaf of booleans in lists, how many of the leaf's values precede each of these rows."""
    match array:
        case pa.ExtensionArray():
            yield from _ends(array.storage, rows, is_listed=is_listed)
        case pa.MapArray():
            below = array.offsets.cast(pa.int64()).take(rows)
            for values in (array.keys, array.items):
                yield from _ends(values, below, is_listed=True)
        case pa.ListArray() | pa.LargeListArray():
            yield from _ends(array.values, array.offsets.cast(pa.int64()).take(rows), is_listed=True)
        case pa.FixedSizeListArray():
            yield from _ends(array.values, pc.multiply(rows, array.type.list_size), is_listed=True)
        case pa.StructArray():
            for index in range(array.type.num_fields):
                yield from _ends(array.field(index), rows, is_listed=is_listed)
        case pa.BooleanArray() if is_listed:
            yield rows
