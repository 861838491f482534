# SPDX-License-Identifier: Apache-2.0
"""One function, one answer: the functions of docs/examples give it to every caller, and fail for every one alike."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

import grpc
import pyarrow as pa
import pytest
from databend_udf.client import UDFClient
from pyarrow import flight

from tests.contract.conftest import MAVEN_TIMEOUT_SECONDS
from tests.support.engines import databend, risingwave
from tests.support.java import run_java
from tests.support.paths import EXAMPLES, REPOSITORY
from tests.support.pool import LocalPool
from updraft import testing
from updraft.errors import ProtocolError, UpdraftError, UserError
from updraft.functions import Function, Kind
from updraft.functions.forms import Form

_PLACES = (EXAMPLES, REPOSITORY / "docs/examples/flight")
_JAVA_EXAMPLE = REPOSITORY / "docs/examples/flight/CallWords.java"
_MODULES = ("shop", "digits", "words")
_TEXTS = pa.array(["a rose is a rose", "", "so it goes"])

AnyFunction: TypeAlias = Function[Any, Any]
Columns: TypeAlias = Sequence[pa.Array]


def _functions() -> dict[str, AnyFunction]:
    with mock.patch.object(sys, "path", [*map(str, _PLACES), *sys.path]):
        modules = [vars(importlib.import_module(name)) for name in _MODULES]
    return {value.name: value for module in modules for value in module.values() if isinstance(value, Function)}


FUNCTIONS = _functions()


def _pictures() -> pa.Array:
    from sklearn.datasets import load_digits

    return pa.array(load_digits().data[:20].tolist())


def _columns(name: str) -> Columns:
    return {
        "discount": lambda: [pa.array([100.0, 20.0, 0.1]), pa.array([10.0, 50.0, 3.0])],
        "text.slug": lambda: [pa.array(["Caps, Hats & Scarves", None, ""])],
        "digit": lambda: [_pictures()],
        "initials": lambda: [pa.array(["ada lovelace", None, "Grace Brewster Hopper"])],
        "word_at": lambda: [pa.array(["so it goes", None, "a rose"]), pa.array([2, 0, 1])],
        "reading_minutes": lambda: [pa.array([460, None, 23])],
        "words": lambda: [_TEXTS],
        "word_counts": lambda: [_TEXTS],
        "mean": lambda: [pa.array([1.0, 2.0, 6.0])],
    }[name]()


def _of_kind(kind: Kind) -> list[str]:
    return [name for name, function in FUNCTIONS.items() if function.kind is kind]


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    """With the functions of the examples."""
    path = os.pathsep.join(map(str, _PLACES))
    modules = [part for module in _MODULES for part in ("--functions", module)]
    with mock.patch.dict(os.environ, PYTHONPATH=path), LocalPool(session_functions="off", arguments=modules) as pool:
        yield pool


@functools.cache
def author(name: str) -> list[Any]:
    """What the author's code returns to whoever calls it."""
    function, columns = FUNCTIONS[name], _columns(name)
    call = function() if function.is_class else function
    match function.signature.form:
        case Form.ROWS:
            return list(map(call, *(column.to_pylist() for column in columns)))
        case Form.NUMPY:
            results: list[Any] = call(*(column.to_numpy(zero_copy_only=False) for column in columns)).tolist()
        case _:
            results = call(*columns).to_pylist()
    return results


def in_a_test(_: LocalPool, name: str, columns: Columns) -> list[Any]:
    return list(testing.call(FUNCTIONS[name], *columns).to_pylist())


def by_pyarrow(pool: LocalPool, name: str, columns: Columns) -> list[Any]:
    return list(flight_table(pool, name, columns).column(0).to_pylist())


def by_risingwave(pool: LocalPool, name: str, columns: Columns) -> list[Any]:
    with risingwave(pool.tcp_address) as engine:
        return list(engine.call(name, columns).to_pylist())


def by_databend(pool: LocalPool, name: str, columns: Columns) -> list[Any]:
    with databend(pool.tcp_address) as engine:
        return list(engine.call(name, columns, _declared(columns), _results(name)[0]).to_pylist())


def by_databends_client(pool: LocalPool, name: str, columns: Columns) -> list[Any]:
    host, port = pool.tcp_address.rsplit(":", 1)
    client = UDFClient(host, int(port))
    with contextlib.closing(client.client):
        return list(client.call_function(name, *(column.to_pylist() for column in columns)))


def flight_table(pool: LocalPool, name: str, columns: Columns) -> pa.Table:
    batch = pa.record_batch(list(columns), [str(number) for number in range(len(columns))])
    with flight.connect(f"grpc://{pool.tcp_address}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(name))
        with writer:
            writer.begin(batch.schema)
            writer.write_batch(batch)
            writer.done_writing()
            return reader.read_all()


def in_java(class_path: str, pool: LocalPool, name: str, *texts: str) -> str:
    return run_java(class_path, _JAVA_EXAMPLE, f"grpc://{pool.tcp_address}", name, *texts)


def _results(name: str) -> list[pa.Field]:
    return list(FUNCTIONS[name].result_schema or ())


def _declared(columns: Columns) -> list[pa.Field]:
    """As CREATE FUNCTION of Databend names what is sent."""
    return [pa.field("", column.type) for column in columns]


Caller: TypeAlias = Callable[[LocalPool, str, Columns], list[Any]]
CALLERS: list[Caller] = [in_a_test, by_pyarrow, by_risingwave, by_databend, by_databends_client]


def test_every_function_of_the_examples_is_called_here() -> None:
    assert all(_columns(name) for name in FUNCTIONS)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("name", _of_kind(Kind.SCALAR))
def test_a_function_answers_as_its_author_wrote_it(pool: LocalPool, name: str, caller: Caller) -> None:
    columns = _columns(name)
    answer = caller(pool, name, columns)
    assert answer == author(name)
    assert len(answer) == len(columns[0])


@pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
@pytest.mark.parametrize("name", ["text.slug", "initials"])
def test_the_java_example_prints_the_same_answers(flight_class_path: str, pool: LocalPool, name: str) -> None:
    texts = ["ada lovelace", "Caps, Hats & Scarves"]
    answer = in_a_test(pool, name, [pa.array(texts)])
    assert in_java(flight_class_path, pool, name, *texts).splitlines() == ["result", *answer]


@pytest.mark.parametrize("caller", [in_a_test, by_pyarrow, by_risingwave])
def test_an_argument_with_a_default_may_be_left_out(pool: LocalPool, caller: Caller) -> None:
    assert caller(pool, "discount", [pa.array([100.0, 10.0])]) == [90.0, 9.0]


@pytest.mark.parametrize("name", _of_kind(Kind.TABLE))
class TestTableFunctions:
    def test_in_a_test(self, name: str) -> None:
        function, columns = FUNCTIONS[name], _columns(name)
        assert testing.table(function, *columns).to_pylist() == [row for _, row in _rows(name)]

    def test_by_pyarrow(self, pool: LocalPool, name: str) -> None:
        found = flight_table(pool, name, _columns(name)).to_pylist()
        assert [(each["row"], each["result"]) for each in found] == _rows(name)

    def test_by_risingwave(self, pool: LocalPool, name: str) -> None:
        with risingwave(pool.tcp_address) as engine:
            assert engine.call_table(name, _columns(name)) == _rows(name)

    def test_by_databend_which_has_one_row(self, pool: LocalPool, name: str) -> None:
        (column,) = _columns(name)
        with databend(pool.tcp_address) as engine:
            for row in (0, 2):
                found = engine.call_table(name, [column.slice(row, 1)], _declared([column]), _results(name))
                assert found == [each for number, each in _rows(name) if number == row]


def _rows(name: str) -> list[tuple[int, dict[str, Any]]]:
    """The author's rows, each with the number of the row that it comes from."""
    (column,) = _columns(name)
    given = enumerate(column.to_pylist())
    return [(number, result._asdict()) for number, text in given for result in FUNCTIONS[name](text)]


def test_an_aggregate_gives_one_value_for_all_rows(pool: LocalPool) -> None:
    """Neither engine calls aggregates by Flight."""
    function, columns = FUNCTIONS["mean"], _columns("mean")
    mean = function()
    written = mean.finish(mean.merge(mean.start(), mean.accumulate(mean.start(), *columns)))
    assert written == 3.0
    assert testing.aggregate(function, *columns).column("result").to_pylist() == [written]
    assert by_pyarrow(pool, "mean", columns) == [written]


class Failure(NamedTuple):
    name: str
    columns: Columns
    error: type[UpdraftError]
    says: str


FAILURES = {
    "the function raises": Failure(
        "word_at", [pa.array(["so it goes"]), pa.array([3])], UserError, "IndexError: list index out of range"
    ),
    "the model raises": Failure("digit", [pa.array([[1.0, 2.0]])], UserError, "ValueError"),
    "a null": Failure("word_at", [pa.array(["so it goes"]), pa.array([None], pa.int64())], ProtocolError, "'number'"),
    "another type": Failure("reading_minutes", [pa.array([1.5])], ProtocolError, "is int64, not double"),
    "a model's other type": Failure("digit", [pa.array([[1, 2]])], ProtocolError, "'pixels'"),
    "a column too few": Failure("word_at", [pa.array(["so it goes"])], ProtocolError, "takes 2 columns"),
    "a column too many": Failure("initials", [pa.array(["a"])] * 2, ProtocolError, "takes 1 column"),
}
CODES = {UserError: grpc.StatusCode.UNKNOWN, ProtocolError: grpc.StatusCode.INVALID_ARGUMENT}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=list(FAILURES))
class TestErrors:
    def test_in_a_test(self, failure: Failure) -> None:
        with pytest.raises(failure.error, match=failure.says):
            testing.call(FUNCTIONS[failure.name], *failure.columns)

    def test_by_pyarrow(self, pool: LocalPool, failure: Failure) -> None:
        # What is no error of a caller has no class of its own there.
        error = pa.ArrowInvalid if failure.error is ProtocolError else pa.ArrowException
        with pytest.raises(error, match=failure.says):
            flight_table(pool, failure.name, failure.columns)

    @pytest.mark.parametrize("caller", [by_risingwave, by_databend])
    def test_by_an_engine(self, pool: LocalPool, failure: Failure, caller: Caller) -> None:
        with pytest.raises(grpc.RpcError) as failed:
            caller(pool, failure.name, failure.columns)
        assert failed.value.code() is CODES[failure.error]
        assert failure.says in str(failed.value.details())


@pytest.mark.parametrize("name", ["nothing", "initials@7"])
def test_what_a_pool_does_not_have_is_not_found(pool: LocalPool, name: str) -> None:
    columns = _columns("initials")
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
