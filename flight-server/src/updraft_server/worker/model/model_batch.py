# SPDX-License-Identifier: Apache-2.0
"""One batch of a model: the rows of several requests are joined, and each request receives its own results or error."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Self

import pyarrow as pa

from updraft.arrow_decoder import ArrowDecoder
from updraft.errors import UpdraftError
from updraft.functions.failures import raised
from updraft_server.worker.model.connection import Connection, Request
from updraft_server.worker.model.function import LoadedModel
from updraft_server.worker.model.messages import MessageKind
from updraft_server.worker.model.row_queue import Piece
from updraft_server.worker.model.watchdog import Watchdog
from updraft_server.worker.process_state import in_this_process


class ModelRequest:
    """Request of one exchange: a batch of arguments, and the results so far."""

    def __init__(self, connection: Connection, sequence: int, batch: pa.RecordBatch, *, is_suspect: bool) -> None:
        self.connection = connection
        self.sequence = sequence
        self.batch = batch
        self._wanted_rows: int = batch.num_rows
        self.is_suspect = is_suspect
        self.runs_alone = False
        """Whether its worker was told (STARTED) that the function receives only rows of this request."""
        self.error: UpdraftError | None = None
        """Set once a part of the request has failed."""
        self._results: list[pa.RecordBatch] = []
        self._rows = 0

    @classmethod
    def decoded(cls, connection: Connection, request: Request, decoder: ArrowDecoder) -> Self:
        """Decode a worker's request; raises UpdraftError if its rows do not match the function's schema."""
        message = request.message
        # Check the whole batch, because a faulty function may have overwritten any memory of the worker.
        batch = decoder.decode_batch(request.payload, sequence=message.sequence)
        return cls(connection, message.sequence, batch, is_suspect=message.kind is MessageKind.SUSPECT_ROWS)

    @property
    def is_complete(self) -> bool:
        """Whether all rows have results."""
        return self._rows == self._wanted_rows

    def take(self, results: pa.RecordBatch) -> None:
        """Add the results of the next rows."""
        self._rows += results.num_rows
        # Copy results that wait for later rows: the function may own their memory and reuse it for other values.
        self._results.append(results if self.is_complete else pa.concat_batches([results]))

    def result(self) -> pa.Buffer:
        """Return all results as an encapsulated IPC message."""
        return pa.concat_batches(self._results).serialize()


class ModelBatch:
    """Rows that the function processes as one batch."""

    def __init__(
        self, pieces: Sequence[Piece[ModelRequest]], model: LoadedModel, timeout_seconds: float, watchdog: Watchdog
    ) -> None:
        self._pieces = pieces
        self._model = model
        self._timeout_seconds = timeout_seconds
        self._watchdog = watchdog

    def announced(self, *, is_deterministic: bool) -> Iterator[tuple[ModelRequest, MessageKind]]:
        """Yield the messages to send before the call, so that workers know whether their rows are to blame for a crash.

        If the function is deterministic, only workers with suspect rows need to know: other rows are retried.
        """
        requests = {id(piece.request): piece.request for piece in self._pieces}.values()
        for request in requests:
            runs_alone = len(requests) == 1 and (request.is_suspect or not is_deterministic)
            if runs_alone is not request.runs_alone:
                request.runs_alone = runs_alone
                yield request, MessageKind.STARTED if runs_alone else MessageKind.JOINED

    def interrupted(self) -> Iterator[ModelRequest]:
        """Yield the request if it ran alone and has rows left. Send JOINED: rows of other requests may run next."""
        request = self._pieces[0].request
        if request.runs_alone and not request.is_complete and request.error is None:
            request.runs_alone = False
            yield request

    @property
    def is_of_a_suspect(self) -> bool:
        """Whether these rows are suspect and have to run alone."""
        return self._pieces[0].request.is_suspect

    def run(self) -> Iterator[ModelRequest]:
        """Call the function. Yield the request of each piece after the piece's results or error were added to it."""
        if len({id(piece.request) for piece in self._pieces}) > 1 and self._run_joined():
            yield from (piece.request for piece in self._pieces)
            return
        for piece in self._pieces:
            self._run_alone(piece)
            yield piece.request

    def _run_joined(self) -> bool:
        """Call the function once for all rows. Return False if the call fails: any of the rows may be to blame."""
        joined = pa.concat_batches([_rows_of(piece) for piece in self._pieces])
        try:
            with self._call():
                results = self._model.joined(joined)
        except BaseException:
            return False
        start = 0
        for piece in self._pieces:
            piece.request.take(results.slice(start, piece.rows))
            start += piece.rows
        return True

    def _run_alone(self, piece: Piece[ModelRequest]) -> None:
        try:
            with self._call():
                piece.request.take(self._model.alone(_rows_of(piece)))
        except UpdraftError as error:
            piece.request.error = error
        except BaseException as error:
            piece.request.error = raised(error)
        if piece.request.error is not None:
            piece.request.error.sequence = piece.request.sequence

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Have the zygote end this process if the call takes longer than the function's time limit."""
        self._watchdog.began_call(self._timeout_seconds)
        try:
            with in_this_process():
                yield
        finally:
            self._watchdog.turned()


def _rows_of(piece: Piece[ModelRequest]) -> pa.RecordBatch:
    return piece.request.batch.slice(piece.start, piece.rows)
