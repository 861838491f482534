# SPDX-License-Identifier: Apache-2.0
"""Joins batches for an aggregate: each call of the author's code has a price, however few rows it gets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from updraft.functions.forms import Form


class Rows(NamedTuple):
    """A batch of an aggregate's rows, in two parts."""

    leading: pa.RecordBatch
    """The keys of all rows and, if the call has a filter, its column."""
    arguments: pa.RecordBatch
    """Of the rows that are accumulated, checked."""
    size_bytes: int
    """Of the values of the whole batch that a caller sent: one column keeps the memory of all of them."""


@dataclass(frozen=True)
class Bounds:
    """The most that is joined. A batch that is larger stays alone."""

    rows: int
    size_bytes: int
    batches: int = 1024
    """Each takes memory beside its values, and brings its time along."""

    @classmethod
    def of(cls, form: Form) -> "Bounds":
        """For code that takes its input in that form."""
        return _OF_VALUES if form is Form.ROWS else _OF_COLUMNS


_OF_COLUMNS = Bounds(rows=256 * 1024, size_bytes=8 << 20)
# As Python's objects, values take many times the bytes that they have in Arrow; and a call for each row costs the same
# however many rows were joined.
_OF_VALUES = Bounds(rows=32 * 1024, size_bytes=1 << 20)


class Joiner:
    """Holds batches until the next one would exceed the bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._held: list[Rows] = []
        self._rows = 0
        self._size_bytes = 0

    @property
    def held(self) -> int:
        """Number of the batches that were added and have not come out yet."""
        return len(self._held)

    def add(self, batch: Rows) -> Iterator[Rows]:
        """Hold the batch if it has rows; gives what is complete, in the order in which it came."""
        rows, size_bytes = batch.leading.num_rows, batch.size_bytes
        if not rows:
            # Any number of them would be within the bounds.
            return
        if not self._has_room(rows, size_bytes):
            yield from self.rest()
        self._held.append(batch)
        self._rows += rows
        self._size_bytes += size_bytes
        if not self._has_room(1, 1) or self.held >= self._bounds.batches:
            yield from self.rest()

    def rest(self) -> Iterator[Rows]:
        """What is still held, if anything."""
        if not self._held:
            return
        leading, arguments, sizes_bytes = zip(*self._held, strict=True)
        joined = Rows(_joined(leading), _joined(arguments), sum(sizes_bytes))
        del leading, arguments
        # Their memory is not needed while the joined rows are worked on.
        self._held.clear()
        self._rows = self._size_bytes = 0
        yield joined

    def _has_room(self, rows: int, size_bytes: int) -> bool:
        return self._rows + rows <= self._bounds.rows and self._size_bytes + size_bytes <= self._bounds.size_bytes


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
