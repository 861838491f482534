# SPDX-License-Identifier: Apache-2.0
"""Joining of small batches for an aggregate, because each call of the author's code has a fixed cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from updraft.functions.hints import Form


class Rows(NamedTuple):
    """Batch of an aggregate's rows, in two parts."""

    leading: pa.RecordBatch
    """Keys of all rows and, if the call has a filter, the filter column."""
    arguments: pa.RecordBatch
    """Checked arguments of the rows to accumulate."""
    size_bytes: int
    """Size of the whole batch that the caller sent, because each column keeps the memory of all columns alive."""


@dataclass(frozen=True)
class Bounds:
    """Upper bounds for joined batches. A batch that exceeds the bounds by itself is not joined with other batches."""

    rows: int
    size_bytes: int
    batches: int = 1024
    """Maximum number of batches to join. Each batch costs memory beyond its values, and adds its time limit to the
    joined batch's time limit."""

    @classmethod
    def of(cls, form: Form) -> "Bounds":
        """Return the bounds for code that takes its arguments in this form."""
        return _OF_VALUES if form is Form.ROWS else _OF_COLUMNS


_OF_COLUMNS = Bounds(rows=256 * 1024, size_bytes=8 << 20)
# Values take many times more memory as Python objects than in Arrow. And code that is called for each row gains nothing
# from larger batches.
_OF_VALUES = Bounds(rows=32 * 1024, size_bytes=1 << 20)


class Joiner:
    """Buffer that holds batches until the next batch would exceed the bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._held: list[Rows] = []
        self._rows = 0
        self._size_bytes = 0

    @property
    def held(self) -> int:
        """Number of added batches that have not been yielded yet."""
        return len(self._held)

    def add(self, batch: Rows) -> Iterator[Rows]:
        """Hold the batch if it has rows; yield joined batches that are complete, in order."""
        rows, size_bytes = batch.leading.num_rows, batch.size_bytes
        if not rows:
            # An empty batch adds nothing, and holding it costs memory.
            return
        if not self._has_room(rows, size_bytes):
            yield from self.rest()
        self._held.append(batch)
        self._rows += rows
        self._size_bytes += size_bytes
        if not self._has_room(1, 1) or self.held >= self._bounds.batches:
            yield from self.rest()

    def rest(self) -> Iterator[Rows]:
        """Yield the held batches as one joined batch, if any are held."""
        if not self._held:
            return
        leading, arguments, sizes_bytes = zip(*self._held, strict=True)
        joined = Rows(_joined(leading), _joined(arguments), sum(sizes_bytes))
        del leading, arguments
        # Release the parts' memory before the caller works on the joined rows.
        self._held.clear()
        self._rows = self._size_bytes = 0
        yield joined

    def _has_room(self, rows: int, size_bytes: int) -> bool:
        return self._rows + rows <= self._bounds.rows and self._size_bytes + size_bytes <= self._bounds.size_bytes


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
