# SPDX-License-Identifier: Apache-2.0
"""Functions of docs/examples: their arguments, the results of their authors' code, and their failures."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

import pyarrow as pa

from tests.support import failing_functions
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from updraft.errors import ProtocolError, UpdraftError, UserError
from updraft.functions import Function, Kind
from updraft.functions.hints import Form

_WITHOUT_TORCH = {"digits_torch"}
"""Modules to skip because tests have no torch; flight-server/tests/pool_on_gpu calls them on a machine with it."""
_TEXTS = pa.array(["a rose is a rose", "", "so it goes"])

AnyFunction: TypeAlias = Function[Any, Any]
Columns: TypeAlias = Sequence[pa.Array]


def _files() -> list[Path]:
    """Return the files of all modules that define functions."""
    files = (REPOSITORY / "docs/examples").rglob("*.py")
    defining = (file for file in files if "from updraft import function" in file.read_text().splitlines())
    return sorted(file for file in defining if file.stem not in _WITHOUT_TORCH)


_PLACES = {str(file.parent): None for file in _files()}
_MODULES = [file.stem for file in _files()]


def _functions() -> dict[str, AnyFunction]:
    with mock.patch.object(sys, "path", [*_PLACES, *sys.path]):
        modules = [importlib.import_module(name) for name in _MODULES]
    return {name: value for module in modules for name, value in _by_name(module).items()}


def _by_name(module: ModuleType) -> dict[str, AnyFunction]:
    return {value.name: value for value in vars(module).values() if isinstance(value, Function)}


FUNCTIONS = _functions()


def of_kind(kind: Kind) -> list[str]:
    """Return the names of the functions of a kind."""
    return [name for name, function in FUNCTIONS.items() if function.kind is kind]


@contextmanager
def examples_pool() -> Iterator[LocalPool]:
    """Run a pool with these functions and with `failing_functions`."""
    path = os.pathsep.join([*_PLACES, str(REPOSITORY)])
    modules = [part for module in (*_MODULES, failing_functions.__name__) for part in ("--functions", module)]
    with mock.patch.dict(os.environ, PYTHONPATH=path), LocalPool(session_functions="off", arguments=modules) as pool:
        yield pool


def _pictures() -> pa.Array:
    from sklearn.datasets import load_digits

    return pa.array(load_digits().data[:20].tolist())


def columns_of(name: str) -> Columns:
    """Return the arguments for a function."""
    return {
        "discount": lambda: [pa.array([100.0, 20.0, 0.1]), pa.array([10.0, 50.0, 3.0])],
        "text.slug": lambda: [pa.array(["Caps, Hats & Scarves", None, ""])],
        "digit": lambda: [_pictures()],
        "moved_digit": lambda: [_pictures()],
        "initials": lambda: [pa.array(["ada lovelace", None, "Grace Brewster Hopper"])],
        "word_at": lambda: [pa.array(["so it goes", None, "a rose"]), pa.array([2, 0, 1])],
        "reading_minutes": lambda: [pa.array([460, None, 23])],
        "words": lambda: [_TEXTS],
        "word_counts": lambda: [_TEXTS],
        "mean": lambda: [pa.array([1.0, 2.0, 6.0])],
    }[name]()


@functools.cache
def author(name: str) -> list[Any]:
    """Return the results of the author's code when called directly; an aggregate takes all rows as one group."""
    function, columns = FUNCTIONS[name], columns_of(name)
    call = function() if function.is_class else function
    if function.kind is Kind.AGGREGATE:
        return [call.finish(call.merge(call.start(), call.accumulate(call.start(), *columns)))]
    match function.signature.form:
        case Form.ROWS:
            return list(map(call, *(column.to_pylist() for column in columns)))
        case Form.NUMPY:
            results: list[Any] = call(*(column.to_numpy(zero_copy_only=False) for column in columns)).tolist()
        case _:
            results = call(*columns).to_pylist()
    return results


def author_rows(name: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a table function, each with the number of its input row."""
    (column,) = columns_of(name)
    given = enumerate(column.to_pylist())
    return [(number, result._asdict()) for number, text in given for result in FUNCTIONS[name](text)]


class Failure(NamedTuple):
    """Call that fails, and the error that every client gets."""

    name: str
    columns: Columns
    error: type[UpdraftError]
    says: str

    @property
    def function(self) -> AnyFunction:
        """Function to call, from the examples or from `failing_functions`."""
        return {**FUNCTIONS, **_by_name(failing_functions)}[self.name]


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

# The last row fails.
TABLE_FAILURES = {
    "a table function raises": Failure("quotients", [pa.array([3, 1])], UserError, "ZeroDivisionError"),
    "a table function's null": Failure("words", [pa.array(["so it goes", None])], ProtocolError, "'text'"),
}

AGGREGATE_FAILURES = {
    "an aggregate raises": Failure("sum_of_quotients", [pa.array([3, 0])], UserError, "ZeroDivisionError"),
    "an aggregate's null": Failure("mean", [pa.array([1.0, None])], ProtocolError, "'value'"),
}
