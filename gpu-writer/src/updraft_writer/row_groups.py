# SPDX-License-Identifier: Apache-2.0
"""Batches gathered to row groups, and which partial ones to let go when memory is short. Policy alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pyarrow as pa

from updraft_writer.quota import Reservation

_SMALLEST_ROW_GROUP_BYTES = 64 * 1024

# Raw and encoded bytes of a row group lie side by side until the raw ones are freed: room is reserved for both.
_BYTES_PER_RAW_BYTE = 2


def reserved_bytes(raw_bytes: int) -> int:
    """What is reserved for a batch: its own bytes and as many for its encoding."""
    return _BYTES_PER_RAW_BYTE * raw_bytes


@dataclass(slots=True)
class RowGroup:
    """Batches that are encoded together, and the bytes reserved for them; whoever has a row group releases those."""

    reservation: Reservation
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    raw_bytes: int = 0

    def append(self, batch: pa.RecordBatch, raw_bytes: int) -> None:
        """Add a batch, or a slice of one."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.raw_bytes += raw_bytes

    def take_table(self, schema: pa.Schema) -> pa.Table:
        """The batches as a table without a copy; the row group forgets them, so that they can be freed."""
        batches, self.batches = self.batches, []
        return pa.Table.from_batches(batches, schema)


class RowGroupBuilder:
    """Gathers the batches of one file until a row group has enough bytes or rows."""

    def __init__(self, *, max_rows: int) -> None:
        self._max_rows = max_rows
        self._partial: RowGroup | None = None

    @property
    def partial_bytes(self) -> int:
        """What the row group that is being filled holds."""
        return self._partial.reservation.held_bytes if self._partial else 0

    def add(
        self, batch: pa.RecordBatch, reservation: Reservation, *, raw_bytes: int, target_bytes: int
    ) -> list[RowGroup]:
        """Take over a batch and the bytes reserved for it; returns the row groups that are full now."""
        full: list[RowGroup] = []
        bytes_per_row = raw_bytes / max(1, batch.num_rows)
        partial = self._filling(reservation)
        while batch.num_rows > (room := self._max_rows - partial.rows):
            partial.append(batch.slice(0, room), int(bytes_per_row * room))
            batch = batch.slice(room)
            full += self.seal()
            partial = self._filling(reservation)
        partial.append(batch, int(bytes_per_row * batch.num_rows))
        # The slices of a batch share its memory until the last of them is done: that one's row group holds the bytes.
        partial.reservation.absorb(reservation)
        if partial.raw_bytes >= target_bytes or partial.rows == self._max_rows:
            full += self.seal()
        return full

    def seal(self) -> list[RowGroup]:
        """The row group that is being filled, if there is one, as it is."""
        partial, self._partial = self._partial, None
        return [partial] if partial else []

    def _filling(self, reservation: Reservation) -> RowGroup:
        if self._partial is None:
            self._partial = RowGroup(reservation.sibling())
        return self._partial


def row_group_target_bytes(wanted_bytes: int, *, quota_bytes: int, open_files: int) -> int:
    """Raw bytes of a row group: what is wanted, or less where many open files share a small quota.

    When all files fill a row group at once, what is reserved for these is half of the quota; the other half is encoded
    and stored.
    """
    fair_bytes = quota_bytes // (2 * _BYTES_PER_RAW_BYTE * max(1, open_files))
    return max(_SMALLEST_ROW_GROUP_BYTES, min(wanted_bytes, fair_bytes))


def stripe_target_bytes(wanted_bytes: int, *, quota_bytes: int, max_files: int, granted: Sequence[int]) -> int:
    """Raw bytes of the stripes of a file: what is wanted, as far as there is room for it.

    An encoder keeps a stripe until it is full, whatever anybody needs, and its size is fixed when a file opens. With
    those that are `granted` to the other open files, all stripes together stay within half of the quota: of the one
    half of that each of `max_files` files has an equal part, of the other whoever opens a file gets half of the rest.
    """
    equal_bytes = quota_bytes // 4 // max_files
    kept_bytes = equal_bytes * (max_files - len(granted) - 1)
    left_bytes = quota_bytes // 2 - sum(granted) - kept_bytes
    return max(_SMALLEST_ROW_GROUP_BYTES, min(wanted_bytes, max(equal_bytes, left_bytes // 2)))


class Partial(Protocol):
    """Who has a partial row group."""

    @property
    def partial_bytes(self) -> int:
        """Bytes that nothing releases until the row group is full."""


Owner = TypeVar("Owner", bound=Partial)


def to_flush(owners: Iterable[Owner], *, missing_bytes: int) -> list[Owner]:
    """Whose partial row groups to let go, the largest first, so that `missing_bytes` come free."""
    chosen: list[Owner] = []
    for owner in sorted(owners, key=lambda owner: owner.partial_bytes, reverse=True):
        if missing_bytes <= 0 or not owner.partial_bytes:
            break
        chosen.append(owner)
        missing_bytes -= owner.partial_bytes
    return chosen
