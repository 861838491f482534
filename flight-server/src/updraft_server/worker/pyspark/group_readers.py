# SPDX-License-Identifier: Apache-2.0
"""Readers of the groups in an exchange's batches, as proto/README.md ("Groups") lays them out.

`GroupReader` passes on a large group slice by slice while the group's batches arrive. `CogroupReader` first reads both
sides of a cogroup completely, because PySpark needs them whole.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NoReturn, Protocol, TypeAlias

import pyarrow as pa

from updraft.errors import ProtocolError
from updraft_server.worker.exchange import Exchange, RequestBatch
from updraft_server.worker.pyspark.kinds import ReplyForm
from updraft_server.worker.replies import Replies, slice_by_rows, slicer

Table: TypeAlias = Iterator[pa.RecordBatch] | list[pa.RecordBatch]
Group: TypeAlias = tuple[Table, ...]


class RequestSource(Protocol):
    """Source of the exchange's batches, in order."""

    max_records_per_batch: int

    def take(self) -> RequestBatch | None:
        """Return the next batch, or None at the end."""

    def refuse(self, problem: str) -> NoReturn:
        """Fail the exchange: the client broke the protocol."""


class AnsweredRequests:
    """Source of the exchange's batches. It also tells `replies` how many rows the function owes for each batch."""

    def __init__(self, exchange: Exchange, replies: Replies, answers: ReplyForm) -> None:
        self._exchange = exchange
        self._replies = replies
        self._answers = answers
        self.max_records_per_batch = exchange.max_records_per_batch

    def slices(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in slices of at most `max_records_per_batch` rows."""
        while (request := self.take()) is not None:
            yield from slice_by_rows(request.batch, self.max_records_per_batch)

    def take(self) -> RequestBatch | None:
        """Send the replies that were held back, then wait for the next batch and return it."""
        self._replies.flush()
        request = self._exchange.take()
        if request is not None:
            per_group = self._answers is ReplyForm.PER_GROUP
            owed = len(request.group_ends) if per_group else request.batch.num_rows
            self._replies.requested(self._exchange.consumed, owed)
        return request

    def refuse(self, problem: str) -> NoReturn:
        """Fail the exchange: the client broke the protocol."""
        self._exchange.fail(ProtocolError(problem))


class GroupReader:
    """Reader of the groups of one input. A step to the next group skips the unread rows of the group before."""

    def __init__(self, source: RequestSource) -> None:
        self._source = source
        self._cut: Iterator[tuple[pa.RecordBatch, bool]] = iter(())

    def __iter__(self) -> Iterator[Group]:
        while (first := next(self._cut, None) or self._next_batch()) is not None:
            group = self._group(first)
            yield (group,)
            for _ in group:
                pass

    def _group(self, piece: tuple[pa.RecordBatch, bool]) -> Iterator[pa.RecordBatch]:
        rows, ends = piece
        yield from slice_by_rows(rows, self._source.max_records_per_batch)
        while not ends:
            following = next(self._cut, None) or self._next_batch()
            if following is None:
                self._source.refuse("the input ended inside a group")
            rows, ends = following
            if rows.num_rows:
                yield from slice_by_rows(rows, self._source.max_records_per_batch)

    def _next_batch(self) -> tuple[pa.RecordBatch, bool] | None:
        """Return the first piece of the next batch that has any pieces; None at the end."""
        while (request := self._source.take()) is not None:
            self._cut = cut(request)
            if (first := next(self._cut, None)) is not None:
                return first
        return None


class CogroupReader:
    """Reader of the groups of two inputs. Batches come in runs: left batches, then right batches of the same groups."""

    def __init__(self, source: RequestSource) -> None:
        self._source = source
        self._left: deque[list[pa.RecordBatch]] = deque()
        self._open: list[list[pa.RecordBatch]] = [[], []]
        self._right_began = False

    def __iter__(self) -> Iterator[Group]:
        while (request := self._source.take()) is not None:
            if request.input == 0:
                self._add_left(request)
            else:
                yield from self._pairs(request)
        if self._left or any(self._open):
            self._source.refuse("the input ended inside a group or before the right side of one")

    def _add_left(self, request: RequestBatch) -> None:
        if self._right_began and (self._left or self._open[1]):
            self._source.refuse("a left batch came before the right groups of its run were complete")
        self._right_began = False
        self._left.extend(self._complete(request))

    def _pairs(self, request: RequestBatch) -> Iterator[Group]:
        if self._open[0]:
            self._source.refuse("a right batch came inside a left group")
        self._right_began = True
        for right in self._complete(request):
            if not self._left:
                self._source.refuse("a right group has no left group before it")
            yield self._left.popleft(), right

    def _complete(self, request: RequestBatch) -> Iterator[list[pa.RecordBatch]]:
        """Yield the groups that end in a batch, with their rows from earlier batches. Hold back rows of open groups."""
        for rows, ends in cut(request):
            group = self._open[request.input]
            if rows.num_rows or (ends and not group):
                group.extend(slice_by_rows(rows, self._source.max_records_per_batch))
            if ends:
                self._open[request.input] = []
                yield group


def as_batches(groups: Iterable[Group]) -> Iterator[pa.RecordBatch]:
    """Yield the groups of one input, each as a single batch."""
    for (slices,) in groups:
        yield pa.concat_batches(list(slices))


def cut(request: RequestBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Cut the batch at its group ends. Yield each piece, and whether its group is complete; the last may be open."""
    rows_from, start = slicer(request.batch), 0
    for end in request.group_ends:
        yield rows_from(start, end - start), True
        start = end
    if start < request.batch.num_rows:
        yield rows_from(start, request.batch.num_rows - start), False
