# SPDX-License-Identifier: Apache-2.0
"""`updraft.testing` runs functions of any columns like a pool: the same answers and the same errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeAlias
from unittest import mock

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.contract import any_columns_functions
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from updraft import testing
from updraft.errors import ProtocolError, UserError

BATCH = pa.record_batch({"x": [1, 2, 3, 4], "y": [10, 20, 30, 40]})
Caller: TypeAlias = Callable[[LocalPool, str, pa.RecordBatch], pa.Table]


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(REPOSITORY)),
        LocalPool(session_functions="off", arguments=("--functions", any_columns_functions.__name__)) as pool,
    ):
        yield pool


def in_a_test(_: LocalPool, name: str, batch: pa.RecordBatch) -> pa.Table:
    return testing.batches(vars(any_columns_functions)[name], batch, batch_rows=2)


def in_the_pool(pool: LocalPool, name: str, batch: pa.RecordBatch) -> pa.Table:
    with flight.connect(f"grpc://{pool.tcp_address}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(name))
        with writer:
            writer.begin(batch.schema)
            for start in range(0, batch.num_rows, 2):
                writer.write_batch(batch.slice(start, 2))
            writer.done_writing()
            return reader.read_all()


CALLERS: list[Caller] = [in_a_test, in_the_pool]


@pytest.mark.parametrize("caller", CALLERS)
def test_each_batch_has_its_results(pool: LocalPool, caller: Caller) -> None:
    expected = pa.table({"x": [2, 4, 6, 8], "y": [20, 40, 60, 80]})
    assert caller(pool, "doubled", BATCH) == expected
    assert caller(pool, "Counted", BATCH).to_pydict() == {"columns": [2, 2, 4, 4]}


ERRORS = {
    "raises": r"ValueError: no \['x', 'y'\]",
    "too_short": "function 'too_short' returned 1 rows for 2",
    "a_table": "function 'a_table' must return a RecordBatch, not Table",
    "as_dictionary": "a dictionary-encoded column, which cannot be sent",
    "in_dictionaries": "a dictionary-encoded column, which cannot be sent",
    "empty_at_first": r"returned the columns \(x: int64\), but has declared, or returned before, \(\)",
    "invalid": "a column that is not valid Arrow",
    "undeclared": r"returned the columns \(x: int64, y: int64\), but has declared, or returned before, \(y: int64\)",
    "inconstant": r"returned the columns \(x_3: int64, .*\), but has declared, or returned before, \(x_1: int64, .*\)",
    "broken_schema": "KeyError",
    "no_schema": "result= of function 'no_schema' returned NoneType, not a pyarrow.Schema",
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_goes_wrong_is_an_error_of_the_function(pool: LocalPool, name: str) -> None:
    with pytest.raises(UserError, match=ERRORS[name]):
        in_a_test(pool, name, BATCH)
    # pyarrow has no class of its own for gRPC's UNKNOWN.
    with pytest.raises(pa.ArrowException, match=ERRORS[name]) as failed:
        in_the_pool(pool, name, BATCH)
    assert "the worker failed" not in str(failed.value)


def test_what_cannot_be_sent_does_not_reach_the_function(pool: LocalPool) -> None:
    lists = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([["a"]]))
    batch = pa.record_batch({"x": lists})
    with pytest.raises(ProtocolError, match="dictionary of list"):
        in_a_test(pool, "raises", batch)
    with pytest.raises(pa.ArrowInvalid, match="dictionary of list"):
        in_the_pool(pool, "raises", batch)
