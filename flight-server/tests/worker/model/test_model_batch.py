# SPDX-License-Identifier: Apache-2.0
"""Rows of several requests that pass through a function, which fails for some of them."""

import socket
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from updraft.arrow_decoder import ArrowDecoder
from updraft.errors import ProtocolError, UserError
from updraft_server.worker.model.connection import Connection, Request, Room
from updraft_server.worker.model.messages import Message, MessageKind
from updraft_server.worker.model.model_batch import ModelBatch, ModelRequest
from updraft_server.worker.model.row_queue import Piece
from updraft_server.worker.model.watchdog import Watchdog

NUMBERS = pa.schema([pa.field("number", pa.int64())])


class Model:
    """Model that refuses 13 and 14, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.calls.append(("joined", batch.num_rows))
        return self._called(batch)

    def alone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.calls.append(("alone", batch.num_rows))
        if 14 in batch.column(0).to_pylist():
            raise UserError("14", exception_class="Unlucky")
        return self._called(batch)

    def warm_up(self) -> None:
        return

    def _called(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch.column(0).to_pylist()
        if 13 in numbers or 14 in numbers:
            raise ValueError("not that one")
        return pa.RecordBatch.from_arrays([pa.array([-number for number in numbers], pa.int64())], ["result"])


@pytest.fixture
def connection() -> Iterator[Connection]:
    worker, model = socket.socketpair()
    with worker, model:
        yield Connection(model, Room(1000))


def request_of(connection: Connection, *numbers: int, sequence: int = 1, is_suspect: bool = False) -> ModelRequest:
    batch = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=NUMBERS)
    return ModelRequest(connection, sequence, batch, is_suspect=is_suspect)


def results_of(request: ModelRequest) -> list[int]:
    batch = pa.ipc.read_record_batch(request.result(), pa.schema([pa.field("result", pa.int64())]))
    return [value for value in batch.column(0).to_pylist() if value is not None]


def run(*pieces: Piece[ModelRequest]) -> Model:
    model = Model()
    for _ in ModelBatch(pieces, model, 0.0, Watchdog()).run():
        continue
    return model


def test_requests_are_called_together_and_each_gets_its_own_results(connection: Connection) -> None:
    first, second = request_of(connection, 1, 2, 3), request_of(connection, 4)
    model = run(Piece(first, 0, 3), Piece(second, 0, 1))
    assert model.calls == [("joined", 4)]
    assert (results_of(first), results_of(second)) == ([-1, -2, -3], [-4])


def test_where_the_joined_call_fails_each_is_called_alone_and_has_its_own_error(connection: Connection) -> None:
    good, bad = request_of(connection, 1, 2), request_of(connection, 3, 13, sequence=9)
    worse = request_of(connection, 14)
    model = run(Piece(good, 0, 2), Piece(bad, 0, 2), Piece(worse, 0, 1))
    assert model.calls == [("joined", 5), ("alone", 2), ("alone", 2), ("alone", 1)]
    assert good.error is None
    assert results_of(good) == [-1, -2]
    assert isinstance(bad.error, UserError)
    assert (bad.error.exception_class, bad.error.message, bad.error.sequence) == (
        "ValueError",
        "ValueError: not that one",
        9,
    )
    assert worse.error is not None
    assert worse.error.exception_class == "Unlucky"


def test_a_single_request_is_called_with_its_own_policy_for_rows_that_fail(connection: Connection) -> None:
    request = request_of(connection, 1, 2, 3)
    assert run(Piece(request, 1, 2)).calls == [("alone", 2)]
    assert not request.is_complete


def test_a_request_in_several_batches_is_complete_with_the_last_of_them(connection: Connection) -> None:
    request = request_of(connection, 1, 2, 3)
    for piece in (Piece(request, 0, 1), Piece(request, 1, 2)):
        assert not request.is_complete
        run(piece)
    assert request.is_complete
    assert results_of(request) == [-1, -2, -3]


class Reusing(Model):
    """Model that writes all results into one array of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = np.zeros(10, np.int64)

    def _called(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        results = self._memory[: batch.num_rows]
        np.negative(batch.column(0).to_numpy(), out=results)
        return pa.RecordBatch.from_arrays([pa.array(results)], ["result"])


def test_results_that_wait_for_more_are_not_those_of_the_functions_next_call(connection: Connection) -> None:
    request, model = request_of(connection, 1, 2, 3), Reusing()
    for piece in (Piece(request, 0, 1), Piece(request, 1, 2)):
        list(ModelBatch([piece], model, 0.0, Watchdog()).run())
    assert results_of(request) == [-1, -2, -3]


def announced(*pieces: Piece[ModelRequest], is_deterministic: bool = True) -> list[tuple[ModelRequest, MessageKind]]:
    return list(ModelBatch(pieces, Model(), 0.0, Watchdog()).announced(is_deterministic=is_deterministic))


def test_a_suspect_is_known_by_its_batch(connection: Connection) -> None:
    suspect = request_of(connection, 1, is_suspect=True)
    assert announced(Piece(suspect, 0, 1)) == [(suspect, MessageKind.STARTED)]
    assert announced(Piece(request_of(connection, 1), 0, 1)) == []


def test_a_suspect_in_several_batches_is_started_with_the_first_of_them(connection: Connection) -> None:
    suspect = request_of(connection, 1, 2, 3, is_suspect=True)
    pieces = Piece(suspect, 0, 2), Piece(suspect, 2, 1)
    assert [announced(piece) for piece in pieces] == [[(suspect, MessageKind.STARTED)], []]


def test_rows_that_must_not_be_repeated_are_known_while_they_are_alone(connection: Connection) -> None:
    request, other = request_of(connection, 1, 2, 3), request_of(connection, 1)
    first, last = Piece(request, 0, 2), Piece(request, 2, 1)
    assert announced(first, is_deterministic=False) == [(request, MessageKind.STARTED)]
    assert announced(last, Piece(other, 0, 1), is_deterministic=False) == [(request, MessageKind.JOINED)]
    assert announced(Piece(other, 0, 1), is_deterministic=False) == [(other, MessageKind.STARTED)]


def test_a_request_whose_other_rows_wait_is_not_alone_any_more(connection: Connection) -> None:
    request, other = request_of(connection, 1, 2, 3, is_suspect=True), request_of(connection, 1, is_suspect=True)
    pieces = Piece(request, 0, 2), Piece(other, 0, 1), Piece(request, 2, 1)
    told = []
    for piece in pieces:
        batch = ModelBatch([piece], Model(), 0.0, Watchdog())
        told += [(kind, request) for request, kind in batch.announced(is_deterministic=True)]
        list(batch.run())
        told += [(MessageKind.JOINED, request) for request in batch.interrupted()]
    assert told == [
        (MessageKind.STARTED, request),
        (MessageKind.JOINED, request),
        (MessageKind.STARTED, other),
        (MessageKind.STARTED, request),
    ]


def test_what_is_no_batch_of_the_functions_columns_is_refused(connection: Connection) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1], pa.int64())], schema=NUMBERS).serialize()
    two_columns = pa.record_batch({"a": pa.array([1]), "b": pa.array([2])}).serialize()
    message = Message(MessageKind.ROWS, 3, 0.0, rows.size)
    for payload in (two_columns, *(rows.slice(0, cut) for cut in (0, 10, rows.size - 1))):
        with pytest.raises(ProtocolError):
            ModelRequest.decoded(connection, Request(message, payload), ArrowDecoder(NUMBERS, max_batch_rows=1000))
