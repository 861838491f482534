# SPDX-License-Identifier: Apache-2.0
"""Policy for joining batches into row groups, and for choosing the partial ones to flush when memory is short."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pyarrow as pa

from updraft.errors import LimitError
from updraft_writer.listed_values import ListedBooleans
from updraft_writer.quota import Reservation

_SMALLEST_ROW_GROUP_BYTES = 64 * 1024
# Limit on the number of row groups that are cut at a client's row limit. The footer describes each column of each row
# group and stays in memory until the file ends, and Parquet counts row groups in 16 bits. Row groups that are cut at
# their size need no such limit, because many bytes have to arrive for each of them.
_MAX_CUT_ROW_GROUPS = (1 << 15) - 1

# Memory that the encoder may need for each byte of the target size, because it converts a whole column at once. Small
# integers need about this much for each of their bytes. Row groups are therefore cut early only if nearly all values
# are booleans or have no bytes.
_ENCODING_BYTES_PER_TARGET_BYTE = 4

# Limit on the memory for encoding one row, in addition to its bytes. It is not reserved, and a row is never cut.
_LARGEST_ROW_BYTES = 64 << 20

# For values without bytes, a credit covers the quota divided by this number, within the bounds below. Several batches
# then have room.
_ALLOWANCES_PER_QUOTA = 4
_SMALLEST_ALLOWANCE_BYTES, _LARGEST_ALLOWANCE_BYTES = 1 << 20, 64 << 20

# Raw and encoded bytes of a row group exist at the same time until the raw ones are freed, so both are reserved.
_BYTES_PER_RAW_BYTE = 2


def reserved_bytes(raw_bytes: int) -> int:
    """Return the bytes to reserve for a batch: its own bytes, and the same number for its encoding."""
    return _BYTES_PER_RAW_BYTE * raw_bytes


def unbacked_allowance_bytes(quota_bytes: int) -> int:
    """Return the additional bytes that a credit covers if the schema of its batch has values without bytes."""
    return min(_LARGEST_ALLOWANCE_BYTES, max(_SMALLEST_ALLOWANCE_BYTES, quota_bytes // _ALLOWANCES_PER_QUOTA))


@dataclass(slots=True)
class RowGroup:
    """Batches that are encoded together, and their reservation, which the owner of the row group releases."""

    reservation: Reservation
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    raw_bytes: int = 0
    encoding_bytes: int = 0

    def append(self, batch: pa.RecordBatch, raw_bytes: int, encoding_bytes: int) -> None:
        """Add a batch, or a slice of one."""
        self.encoding_bytes += encoding_bytes
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.raw_bytes += raw_bytes

    def take_table(self, schema: pa.Schema) -> pa.Table:
        """Return the batches as a table, without a copy. Drops the row group's references, so they can be freed."""
        batches, self.batches = self.batches, []
        return pa.Table.from_batches(batches, schema)


class RowGroupBuilder:
    """Builder that joins the batches of one file until a row group has enough bytes or rows."""

    def __init__(self, *, max_rows: int) -> None:
        self._max_rows = max_rows
        self._rows = 0
        self._partial: RowGroup | None = None

    @property
    def partial_bytes(self) -> int:
        """Bytes held by the row group being filled."""
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
        """Take over a batch and its reservation; return the row groups that are now full.

        `encoding_bytes` is the memory that encoding briefly needs in addition to the batch's bytes (`arrow_cost`).
        Raises LimitError, before it takes anything over, if the file would get too many row groups or a row would cost
        too much to encode.
        """
        self._rows += batch.num_rows
        if self._rows // self._max_rows > _MAX_CUT_ROW_GROUPS:
            raise LimitError(
                f"row groups of {self._max_rows} rows (row_group_rows) would be more than {_MAX_CUT_ROW_GROUPS} in one "
                "file, which is the limit: ask for larger row groups, or write more files"
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

    If all files fill a row group at once, the row groups take half of the quota. The other half is for row groups being
    encoded and stored.
    """
    fair_bytes = quota_bytes // (2 * _BYTES_PER_RAW_BYTE * max(1, open_files))
    return max(_SMALLEST_ROW_GROUP_BYTES, min(wanted_bytes, fair_bytes))


def stripe_target_bytes(wanted_bytes: int, *, quota_bytes: int, max_files: int, granted: Sequence[int]) -> int:
    """Return the raw bytes of a file's stripes: `wanted_bytes`, or less if there is not enough room.

    An encoder keeps a stripe until it is full, even if others need the memory, and the stripe size is fixed when a file
    opens. All stripes, including those `granted` to the other open files, stay within half of the quota. A quarter of
    the quota is kept in equal parts, one for each of `max_files` files. A new file gets its part, or, if that is more,
    half of what is neither granted nor kept for others.
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
    """Return the owners whose partial row groups must be flushed to free `missing_bytes`, the largest first."""
    chosen: list[Owner] = []
    for owner in sorted(owners, key=lambda owner: owner.partial_bytes, reverse=True):
        if missing_bytes <= 0 or not owner.partial_bytes:
            break
        chosen.append(owner)
        missing_bytes -= owner.partial_bytes
    return chosen
