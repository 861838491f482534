# SPDX-License-Identifier: Apache-2.0
"""Effect of a function's `on_error` on its callers: an error of the call, a null, or a value and an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import grpc
import pyarrow as pa
import pytest

from tests.contract.python_clients import by_databends_client, by_pyarrow
from tests.contract.written_functions import pool_of
from tests.support.engines import databend, risingwave
from tests.support.pool import LocalPool

FUNCTIONS = '''
"""Each form of function with each policy: rows_raise, rows_null and so on."""

import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow, Batching


def rows(x: float) -> float:
    return 1 / x


async def awaited(x: float) -> float:
    return 1 / x


def columns(x: Arrow[float]) -> Arrow[float]:
    if pc.any(pc.equal(x, 0.0)).as_py():
        raise ZeroDivisionError("float division by zero")
    return pc.divide(1.0, x)


for policy in ("raise", "null", "struct"):
    for code in (rows, awaited, columns):
        name = f"{code.__name__}_{policy}"
        globals()[name] = function(name=name, on_error=policy)(code)
    name = f"model_{policy}"
    globals()[name] = function(name=name, on_error=policy, batching=Batching(wait_seconds=0.0))(columns)
'''
FORMS = ["rows", "awaited", "columns", "model"]
COLUMNS = [pa.array([1.0, 0.0, 2.0])]
ERROR = "ZeroDivisionError: float division by zero"
STRUCT = pa.struct([("value", pa.float64()), ("error", pa.string())])
ARGUMENT = pa.field("", pa.float64(), nullable=False)
TYPES = {
    "raise": pa.field("", pa.float64(), nullable=False),
    "null": pa.field("", pa.float64()),
    "struct": pa.field("", STRUCT, nullable=False),
}
ANSWERS: dict[str, list[Any]] = {
    "null": [1.0, None, 0.5],
    "struct": [{"value": 1.0, "error": None}, {"value": None, "error": ERROR}, {"value": 0.5, "error": None}],
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with pool_of(FUNCTIONS, tmp_path_factory.mktemp("functions")) as pool:
        yield pool


def by_risingwave(pool: LocalPool, name: str, columns: Sequence[pa.Array]) -> list[Any]:
    with risingwave(pool.tcp_address) as engine:
        engine.create_function(name, [column.type for column in columns], TYPES[_policy(name)].type)
        return list(engine.call(name, columns).to_pylist())


def by_databend(pool: LocalPool, name: str, columns: Sequence[pa.Array]) -> list[Any]:
    with databend(pool.tcp_address) as engine:
        engine.create_function(name, [ARGUMENT], TYPES[_policy(name)])
        return list(engine.call(name, columns, [ARGUMENT], TYPES[_policy(name)]).to_pylist())


def _policy(name: str) -> str:
    return name.rpartition("_")[2]


Caller: TypeAlias = Callable[[LocalPool, str, Sequence[pa.Array]], list[Any]]
CALLERS: list[Caller] = [by_pyarrow, by_risingwave, by_databend, by_databends_client]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("policy", ANSWERS)
@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_fails_is_answered_as_the_policy_says(
    pool: LocalPool, form: str, policy: str, caller: Caller
) -> None:
    assert caller(pool, f"{form}_{policy}", COLUMNS) == ANSWERS[policy]


@pytest.mark.parametrize("caller", [by_pyarrow, by_databends_client])
@pytest.mark.parametrize("form", FORMS)
def test_without_a_policy_a_python_client_has_an_exception(pool: LocalPool, form: str, caller: Caller) -> None:
    with pytest.raises(pa.ArrowException, match=ERROR):
        caller(pool, f"{form}_raise", COLUMNS)


@pytest.mark.parametrize("caller", [by_risingwave, by_databend])
@pytest.mark.parametrize("form", FORMS)
def test_without_a_policy_an_engine_has_a_status(pool: LocalPool, form: str, caller: Caller) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        caller(pool, f"{form}_raise", COLUMNS)
    assert failed.value.code() is grpc.StatusCode.UNKNOWN
    assert ERROR in str(failed.value.details())


@pytest.mark.parametrize("policy", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_a_null_argument_is_refused_under_every_policy(pool: LocalPool, form: str, policy: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"argument 'x' of function .* has a null"):
        by_pyarrow(pool, f"{form}_{policy}", [pa.array([1.0, None])])
