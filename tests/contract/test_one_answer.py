# SPDX-License-Identifier: Apache-2.0
"""One function, one answer: the functions of docs/examples give all callers the same results and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import grpc
import pyarrow as pa
import pytest

from tests.contract.conftest import MAVEN_TIMEOUT_SECONDS
from tests.contract.java_client import FlightError, JavaClient, java_client
from tests.contract.python_clients import by_databends_client, by_pyarrow, flight_table
from tests.support.engines import databend, risingwave
from tests.support.example_functions import (
    AGGREGATE_FAILURES,
    FAILURES,
    FUNCTIONS,
    TABLE_FAILURES,
    Columns,
    Failure,
    author,
    author_rows,
    columns_of,
    examples_pool,
    of_kind,
)
from tests.support.java import run_java
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from updraft import testing
from updraft.errors import ProtocolError, UserError
from updraft.functions import Kind

_JAVA_EXAMPLE = REPOSITORY / "docs/examples/flight/CallWords.java"


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    """Start a pool with the functions of the examples."""
    with examples_pool() as pool:
        yield pool


def in_a_test(_: LocalPool, name: str, columns: Columns) -> list[Any]:
    return list(testing.call(FUNCTIONS[name], *columns).to_pylist())


def by_risingwave(pool: LocalPool, name: str, columns: Columns) -> list[Any]:
    with risingwave(pool.tcp_address) as engine:
        return list(engine.call(name, columns).to_pylist())


def by_databend(pool: LocalPool, name: str, columns: Columns) -> list[Any]:
    with databend(pool.tcp_address) as engine:
        return list(engine.call(name, columns, _declared(columns), _results(name)[0]).to_pylist())


def in_java(class_path: str, pool: LocalPool, name: str, *texts: str) -> str:
    return run_java(class_path, _JAVA_EXAMPLE, f"grpc://{pool.tcp_address}", name, *texts)


def _results(name: str) -> list[pa.Field]:
    return list(FUNCTIONS[name].result_schema or ())


def _declared(columns: Columns) -> list[pa.Field]:
    """Return the fields as Databend's CREATE FUNCTION names them."""
    return [pa.field("", column.type) for column in columns]


Caller: TypeAlias = Callable[[LocalPool, str, Columns], list[Any]]
CALLERS: list[Caller] = [in_a_test, by_pyarrow, by_risingwave, by_databend, by_databends_client]


@pytest.fixture(scope="module")
def java(flight_class_path: str, pool: LocalPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """Run a Java client of the pool."""
    with java_client(flight_class_path, pool.tcp_address, tmp_path_factory.mktemp("java")) as client:
        yield client


def test_every_function_of_the_examples_is_called_here() -> None:
    # One known function of each module.
    assert {"discount", "digit", "moved_digit", "initials"} <= set(FUNCTIONS)
    assert all(columns_of(name) for name in FUNCTIONS)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("name", of_kind(Kind.SCALAR))
def test_a_function_answers_as_its_author_wrote_it(pool: LocalPool, name: str, caller: Caller) -> None:
    columns = columns_of(name)
    answer = caller(pool, name, columns)
    assert answer == author(name)
    assert len(answer) == len(columns[0])


@pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
@pytest.mark.parametrize("name", of_kind(Kind.SCALAR))
def test_a_function_answers_java_as_its_author_wrote_it(java: JavaClient, name: str) -> None:
    assert java.call(name, columns_of(name)).column(0).to_pylist() == author(name)


@pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
@pytest.mark.parametrize("name", ["text.slug", "initials"])
def test_the_java_example_prints_the_same_answers(flight_class_path: str, pool: LocalPool, name: str) -> None:
    texts = ["ada lovelace", "Caps, Hats & Scarves"]
    answer = in_a_test(pool, name, [pa.array(texts)])
    assert in_java(flight_class_path, pool, name, *texts).splitlines() == ["result", *answer]


@pytest.mark.parametrize("caller", [in_a_test, by_pyarrow, by_risingwave, by_databend])
def test_an_argument_with_a_default_may_be_left_out(pool: LocalPool, caller: Caller) -> None:
    assert caller(pool, "discount", [pa.array([100.0, 10.0])]) == [90.0, 9.0]


@pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
def test_java_may_leave_out_an_argument_with_a_default(java: JavaClient) -> None:
    assert java.call("discount", [pa.array([100.0, 10.0])]).column(0).to_pylist() == [90.0, 9.0]


def test_databend_may_declare_a_function_without_its_default(pool: LocalPool) -> None:
    price = pa.field("", pa.float64(), nullable=False)
    with databend(pool.tcp_address) as engine:
        engine.create_function("discount", [price], price)
        assert engine.call("discount", [pa.array([100.0, 10.0])], [price], price).to_pylist() == [90.0, 9.0]


@pytest.mark.parametrize("name", of_kind(Kind.TABLE))
class TestTableFunctions:
    def test_in_a_test(self, name: str) -> None:
        function, columns = FUNCTIONS[name], columns_of(name)
        assert testing.table(function, *columns).to_pylist() == [row for _, row in author_rows(name)]

    def test_by_pyarrow(self, pool: LocalPool, name: str) -> None:
        found = flight_table(pool, name, columns_of(name)).to_pylist()
        assert [(each["row"], each["result"]) for each in found] == author_rows(name)

    @pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
    def test_in_java(self, java: JavaClient, name: str) -> None:
        found = java.call(name, columns_of(name)).to_pylist()
        assert [(each["row"], each["result"]) for each in found] == author_rows(name)

    def test_by_risingwave(self, pool: LocalPool, name: str) -> None:
        with risingwave(pool.tcp_address) as engine:
            assert engine.call_table(name, columns_of(name)) == author_rows(name)

    def test_by_databend_which_has_one_row(self, pool: LocalPool, name: str) -> None:
        (column,) = columns_of(name)
        with databend(pool.tcp_address) as engine:
            for row in (0, 2):
                found = engine.call_table(name, [column.slice(row, 1)], _declared([column]), _results(name))
                assert found == [each for number, each in author_rows(name) if number == row]


@pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
def test_an_aggregate_gives_one_value_for_all_rows(pool: LocalPool, java: JavaClient) -> None:
    """Neither engine calls aggregates over Flight."""
    columns = columns_of("mean")
    assert author("mean") == [3.0]
    assert testing.aggregate(FUNCTIONS["mean"], *columns).column("result").to_pylist() == [3.0]
    assert by_pyarrow(pool, "mean", columns) == [3.0]
    assert java.call("mean", columns).column("result").to_pylist() == [3.0]


CODES = {UserError: grpc.StatusCode.UNKNOWN, ProtocolError: grpc.StatusCode.INVALID_ARGUMENT}
# Databend's client checks the number of columns itself, and converts them to the types that the pool reported.
BY_DATABENDS_CLIENT = {
    "a model's other type": (pa.ArrowException, "ValueError"),
    "a column too few": (ValueError, "expects 2 arguments, got 1"),
    "a column too many": (ValueError, "expects 1 arguments, got 2"),
}


def hears_by_pyarrow(pool: LocalPool, failure: Failure) -> None:
    # pyarrow has no class of its own for errors that are not the caller's.
    error = pa.ArrowInvalid if failure.error is ProtocolError else pa.ArrowException
    with pytest.raises(error, match=failure.says):
        flight_table(pool, failure.name, failure.columns)


def hears_in_java(java: JavaClient, failure: Failure) -> None:
    with pytest.raises(FlightError) as failed:
        java.call(failure.name, failure.columns)
    assert str(failed.value).startswith(f"{CODES[failure.error].name}: ")
    assert failure.says in str(failed.value)


@pytest.mark.parametrize("failure", FAILURES.values(), ids=list(FAILURES))
class TestErrors:
    def test_in_a_test(self, failure: Failure) -> None:
        with pytest.raises(failure.error, match=failure.says):
            testing.call(failure.function, *failure.columns)

    def test_by_pyarrow(self, pool: LocalPool, failure: Failure) -> None:
        hears_by_pyarrow(pool, failure)

    @pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
    def test_in_java(self, java: JavaClient, failure: Failure) -> None:
        hears_in_java(java, failure)

    @pytest.mark.parametrize("caller", [by_risingwave, by_databend])
    def test_by_an_engine(self, pool: LocalPool, failure: Failure, caller: Caller) -> None:
        with pytest.raises(grpc.RpcError) as failed:
            caller(pool, failure.name, failure.columns)
        assert failed.value.code() is CODES[failure.error]
        assert failure.says in str(failed.value.details())

    def test_by_databends_client(self, pool: LocalPool, failure: Failure) -> None:
        (case,) = (case for case, each in FAILURES.items() if each is failure)
        if case == "another type":
            # The client truncates 1.5 to 1 before it sends it.
            assert by_databends_client(pool, failure.name, failure.columns) == [1 / 230]
            return
        error = pa.ArrowInvalid if failure.error is ProtocolError else pa.ArrowException
        kind, says = BY_DATABENDS_CLIENT.get(case, (error, failure.says))
        with pytest.raises(kind, match=says):
            by_databends_client(pool, failure.name, failure.columns)


@pytest.mark.parametrize("failure", TABLE_FAILURES.values(), ids=list(TABLE_FAILURES))
class TestErrorsOfTableFunctions:
    def test_in_a_test(self, failure: Failure) -> None:
        with pytest.raises(failure.error, match=failure.says):
            testing.table(failure.function, *failure.columns)

    def test_by_pyarrow(self, pool: LocalPool, failure: Failure) -> None:
        hears_by_pyarrow(pool, failure)

    @pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
    def test_in_java(self, java: JavaClient, failure: Failure) -> None:
        hears_in_java(java, failure)

    def test_by_risingwave(self, pool: LocalPool, failure: Failure) -> None:
        with risingwave(pool.tcp_address) as engine, pytest.raises(grpc.RpcError) as failed:
            engine.call_table(failure.name, failure.columns)
        assert failed.value.code() is CODES[failure.error]
        assert failure.says in str(failed.value.details())

    def test_by_databend_which_has_one_row(self, pool: LocalPool, failure: Failure) -> None:
        (column,) = failure.columns
        results = list(failure.function.result_schema or ())
        with databend(pool.tcp_address) as engine, pytest.raises(grpc.RpcError) as failed:
            engine.call_table(failure.name, [column.slice(1)], _declared([column]), results)
        assert failed.value.code() is CODES[failure.error]
        assert failure.says in str(failed.value.details())


@pytest.mark.parametrize("failure", AGGREGATE_FAILURES.values(), ids=list(AGGREGATE_FAILURES))
class TestErrorsOfAggregates:
    def test_in_a_test(self, failure: Failure) -> None:
        with pytest.raises(failure.error, match=failure.says):
            testing.aggregate(failure.function, *failure.columns)

    def test_by_pyarrow(self, pool: LocalPool, failure: Failure) -> None:
        hears_by_pyarrow(pool, failure)

    @pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
    def test_in_java(self, java: JavaClient, failure: Failure) -> None:
        hears_in_java(java, failure)


@pytest.mark.parametrize("name", ["nothing", "initials@7"])
def test_what_a_pool_does_not_have_is_not_found(pool: LocalPool, name: str) -> None:
    columns = columns_of("initials")
    with pytest.raises(KeyError, match=name.partition("@")[0]):
        by_pyarrow(pool, name, columns)
    with risingwave(pool.tcp_address) as rising_wave, databend(pool.tcp_address) as data_bend:
        for ask in (rising_wave.flight_info, data_bend.flight_info, lambda name: rising_wave.call(name, columns)):
            with pytest.raises(grpc.RpcError) as refused:
                ask(name)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("reading_minutes", "INVALID_ARGUMENT: argument 'words' of function 'reading_minutes' is int64, not string"),
        ("nothing", "NOT_FOUND: no function 'nothing'"),
    ],
)
def test_the_java_example_hears_of_errors(flight_class_path: str, pool: LocalPool, name: str, says: str) -> None:
    assert in_java(flight_class_path, pool, name, "a").startswith(says)
