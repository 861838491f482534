# SPDX-License-Identifier: Apache-2.0
"""Functions that give a value for each group of rows, in one stage or with states that travel in between."""

import datetime
import decimal
import math
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.errors import ProtocolError, UserError
from updraft.functions import Arrow, DeclarationError, NumPy, Pandas, function
from updraft.functions.aggregates import AggregateCall, LoadedAggregate, Stage
from updraft.functions.loaded import load as loaded
from updraft.testing import aggregate


class State(NamedTuple):
    total: float
    number: int


class Base:
    def start(self) -> State:
        return State(0.0, 0)

    def merge(self, left: State, right: State) -> State:
        return State(left.total + right.total, left.number + right.number)

    def finish(self, state: State) -> float | None:
        return state.total / state.number if state.number else None


@function.aggregate
class OfRows(Base):
    """The mean."""

    def accumulate(self, state: State, value: float) -> State:
        return State(state.total + value, state.number + 1)


@function.aggregate
class OfArrow(Base):
    def accumulate(self, state: State, value: Arrow[float]) -> State:
        return State(state.total + pc.sum(value).as_py(), state.number + len(value))


@function.aggregate
class OfPandas(Base):
    def accumulate(self, state: State, value: Pandas[float]) -> State:
        return State(state.total + float(value.sum()), state.number + len(value))


@function.aggregate
class OfNumPy(Base):
    def accumulate(self, state: State, value: NumPy[float]) -> State:
        return State(state.total + float(value.sum()), state.number + len(value))


@function.aggregate
class Rows:
    def start(self) -> int:
        return 0

    def accumulate(self, state: int) -> int:
        return state + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> int:
        return state


FORMS = [OfRows, OfArrow, OfPandas, OfNumPy]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("batch_rows", [0, 1, 2])
def test_every_form_gives_one_row_for_each_group(form: Any, parts: int, batch_rows: int) -> None:
    cities = ["Bern", None, "Bern", "Rome", None]
    result = aggregate(form, [1.0, 2.0, 3.0, 4.0, 6.0], keys={"city": cities}, parts=parts, batch_rows=batch_rows)
    assert result.schema == pa.schema({"city": pa.string(), "result": pa.float64()})
    assert {row["city"]: row["result"] for row in result.to_pylist()} == {"Bern": 2.0, None: 4.0, "Rome": 4.0}
    assert result.num_rows == 3


@function.aggregate
class LastMinusFirst:
    def start(self) -> float:
        return 0.0

    def accumulate(self, state: float, value: Pandas[float], weight: Pandas[int | None]) -> float:
        assert list(value.index) == list(weight.index) == list(range(len(value)))
        # pandas aligns two Series by their indexes.
        weighed = value * pd.Series([1.0] * len(value))
        return state + float(weighed[len(value) - 1] - weighed[0])

    def merge(self, left: float, right: float) -> float:
        return left + right

    def finish(self, state: float) -> float:
        return state


@pytest.mark.parametrize("parts", [1, 2])
def test_the_series_of_every_group_begin_at_index_0(parts: int) -> None:
    values, weights = [1.0, 2.0, 5.0, 3.0, 9.0], [1, None, 2, 3, 4]
    result = aggregate(LastMinusFirst, values, weights, keys={"x": ["a", "b", "a", "c", "b"]}, parts=parts)
    assert result.to_pydict() == {"x": ["a", "b", "c"], "result": [4.0, 7.0, 0.0]}


@pytest.mark.parametrize("parts", [1, 2])
def test_without_keys_all_rows_are_one_group_which_is_there_without_a_row(parts: int) -> None:
    assert aggregate(OfRows, [1.0, 2.0], parts=parts, batch_rows=1).to_pydict() == {"result": [1.5]}
    assert aggregate(OfRows, [], parts=parts).to_pydict() == {"result": [None]}
    assert aggregate(OfRows, [], keys={"city": pa.array([], pa.string())}, parts=parts).num_rows == 0


@pytest.mark.parametrize("parts", [1, 2])
def test_a_function_without_arguments_counts_rows(parts: int) -> None:
    assert aggregate(Rows, rows=3, parts=parts).to_pydict() == {"result": [3]}
    counted = aggregate(Rows, keys={"x": [1, 2, 1]}, parts=parts, batch_rows=2)
    assert counted.to_pydict() == {"x": [1, 2], "result": [2, 1]}


KEYS: dict[str, pa.Array] = {
    "int": pa.array([1, 2, 1, None, None]),
    "text": pa.array(["a", "b", "a", None, None]),
    "float": pa.array([0.0, math.nan, -0.0, math.inf, math.inf]),
    "bool": pa.array([True, False, True, None, None]),
    "date": pa.array([datetime.date(2026, 1, day) for day in (1, 2, 1, 3, 3)]),
    "nanoseconds": pa.array([1, 2, 1, 3, 3], pa.timestamp("ns")),
    "span": pa.array([1, 2, 1, 3, 3], pa.duration("us")),
    "decimal": pa.array([decimal.Decimal(value) for value in (1, 2, 1, 3, 3)], pa.decimal128(10, 2)),
    "binary": pa.array([b"a", b"b", b"a", b"", b""]),
    "struct": pa.array([{"a": 1, "b": [1]}, {"a": 1, "b": [2]}, {"a": 1, "b": [1]}, None, None]),
    "list": pa.array([[1], [2], [1], [], []]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("batch_rows", [0, 2])
def test_rows_of_equal_keys_are_one_group(kind: str, batch_rows: int) -> None:
    counted = aggregate(Rows, keys={"key": KEYS[kind]}, batch_rows=batch_rows)
    assert counted.column("result").to_pylist() == [2, 1, 2]
    assert counted.column("key").type == KEYS[kind].type
    assert counted.column("key").combine_chunks().equals(KEYS[kind].take(pa.array([0, 1, 3]))) or kind == "float"


@given(
    st.lists(st.tuples(st.integers(0, 3) | st.none(), st.sampled_from("abc"), st.integers(0, 9)), max_size=40),
    st.integers(1, 7),
    st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_groups_are_those_of_a_dictionary(rows: list[tuple[int | None, str, int]], batch_rows: int, parts: int) -> None:
    expected: dict[tuple[int | None, str], list[int]] = {}
    for number, letter, value in rows:
        expected.setdefault((number, letter), []).append(value)
    numbers, letters, values = (
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.string()),
        [float(row[2]) for row in rows],
    )
    result = aggregate(OfArrow, values, keys={"n": numbers, "l": letters}, batch_rows=batch_rows, parts=parts)
    found = {(row["n"], row["l"]): row["result"] for row in result.to_pylist()}
    assert found == pytest.approx({key: sum(group) / len(group) for key, group in expected.items()})


def test_a_state_travels_as_arrow_values() -> None:
    mean: Any = OfRows
    assert mean.state_schema == pa.schema(
        [
            pa.field(
                "state",
                pa.struct(
                    [pa.field("total", pa.float64(), nullable=False), pa.field("number", pa.int64(), nullable=False)]
                ),
                nullable=False,
            )
        ]
    )
    states = run(OfRows, Stage.ACCUMULATE, pa.record_batch({"value": [1.0, 2.0]}))
    assert states.to_pylist() == [{"state": {"total": 3.0, "number": 2}}]


def test_states_that_a_caller_made_up_are_checked_as_arguments_are() -> None:
    with pytest.raises(ProtocolError, match="argument 'state' of function 'OfRows' is struct"):
        run(OfRows, Stage.MERGE, pa.record_batch({"state": [1.0]}))
    kind = pa.struct({"total": pa.float64(), "number": pa.int64()})
    with pytest.raises(ProtocolError, match=r"has a null.*state.number"):
        run(OfRows, Stage.MERGE, pa.record_batch({"state": pa.array([{"total": 1.0, "number": None}], kind)}))


@pytest.mark.parametrize("code", [OfRows, OfArrow, OfPandas])
@pytest.mark.parametrize("stage", [Stage.WHOLE, Stage.ACCUMULATE])
def test_rows_that_a_filter_leaves_out_make_groups_and_are_not_looked_at(code: Any, stage: Stage) -> None:
    batch = pa.record_batch(
        {
            "key": ["a", "b", "a", "c", "a"],
            "counts": [True, False, False, None, True],
            "value": [1.0, None, None, 4.0, 5.0],
        }
    )
    found = run(code, stage, batch, key_columns=1, filtered=True).to_pydict()
    assert found["key"] == ["a", "b", "c"]
    if stage is Stage.WHOLE:
        assert found["result"] == [3.0, None, None]
    else:
        assert [state["number"] for state in found["state"]] == [2, 0, 0]


def test_a_filter_without_keys_leaves_a_group_of_no_rows() -> None:
    batch = pa.record_batch({"counts": [False, None], "value": [1.0, 2.0]})
    assert run(OfRows, Stage.WHOLE, batch, filtered=True).to_pylist() == [{"result": None}]


def test_a_filter_that_is_not_there_or_no_bool_is_refused() -> None:
    with pytest.raises(ProtocolError, match="but has a column of double after the keys, not one of bool"):
        run(OfRows, Stage.WHOLE, pa.record_batch({"key": ["a"], "value": [1.0]}), key_columns=1, filtered=True)
    with pytest.raises(ProtocolError, match="but has no column after the keys"):
        run(OfRows, Stage.WHOLE, pa.record_batch({"key": ["a"]}), key_columns=1, filtered=True)


def test_more_keys_than_columns_are_refused() -> None:
    with pytest.raises(ProtocolError, match="2 key columns, but there are 1"):
        run(OfRows, Stage.WHOLE, pa.record_batch({"value": [1.0]}), key_columns=2)


def test_arguments_are_checked_behind_the_keys() -> None:
    with pytest.raises(ProtocolError, match="argument 'value' of function 'OfRows' is double, not int64"):
        aggregate(OfRows, pa.array([1]), keys={"city": ["Bern"]})


def test_what_a_method_raises_or_returns_wrongly_is_an_error_of_the_function() -> None:
    @function.aggregate
    class Raises(Base):
        def accumulate(self, state: State, value: float) -> State:
            raise ValueError("no")

    @function.aggregate
    class Lies(Base):
        def accumulate(self, state: State, value: float) -> State:
            return State(value, 1)

        def finish(self, state: State) -> float:
            return "x"  # type: ignore[return-value]  # that is the error

    with pytest.raises(UserError, match="ValueError: no"):
        aggregate(Raises, [1.0])
    with pytest.raises(UserError, match="returned a value that does not fit double"):
        aggregate(Lies, [1.0])


def test_a_class_that_is_no_aggregate_is_refused() -> None:
    class Partial:
        def start(self) -> int:
            return 0

    class OtherState(Base):
        def accumulate(self, state: State, value: float) -> int:
            return 1

    def no_class(x: int) -> int:
        return x

    refused: list[tuple[Any, str]] = [
        (Partial, "lacks accumulate, merge, finish"),
        (OtherState, "has to return what start returns"),
        (no_class, "has to be a class"),
    ]
    for code, reason in refused:
        with pytest.raises(DeclarationError, match=reason):
            function.aggregate(code)


def run(
    code: Any, stage: Stage, *batches: pa.RecordBatch, key_columns: int = 0, filtered: bool = False
) -> pa.RecordBatch:
    function_ = loaded(code)
    assert isinstance(function_, LoadedAggregate)
    aggregation = function_.begin(batches[0].schema, AggregateCall(stage, key_columns, filtered))
    for batch in batches:
        aggregation.add(batch)
    return aggregation.results()
