# SPDX-License-Identifier: Apache-2.0
"""Fast conversions in the serializers of PySpark before 4.2 give the same results, and the same errors, as its own."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import types
from pyspark.sql.pandas import serializers

from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.plain_columns import install_before_4_2

_VERSION = minor_version(pyspark.__version__)
if _VERSION >= (4, 2):
    pytest.skip("since 4.2 PySpark converts elsewhere", allow_module_level=True)

# PySpark 3.5 calls functions of pandas that are deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
_Stock: Any = serializers.ArrowStreamPandasUDFSerializer


class _Short(_Stock):  # type: ignore[misc]
    pass


install_before_4_2(SimpleNamespace(ArrowStreamPandasSerializer=_Short))
_OPTIONS = {"timezone": "UTC", "safecheck": True, "assign_cols_by_name": True}
# Since 4.1 PySpark passes the number of the column.
_NUMBER = (0,) if _VERSION >= (4, 1) else ()


def _both(convert: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return what the fast and the stock serializer make, or the text of their error."""
    found = []
    for serializer in (_Short(**_OPTIONS), _Stock(**_OPTIONS)):
        try:
            found.append(convert(serializer))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found[0], found[1]


_SERIES = {
    "longs": (pd.Series([1, -1, 3], dtype="int64"), pa.int64()),
    "bytes": (pd.Series([1, 2], dtype="int8"), pa.int8()),
    "doubles": (pd.Series([1.5, float("nan")]), pa.float64()),
    "every second": (pd.Series(range(6))[::2], pa.int64()),
    "texts": (pd.Series(["a", None, "é", float("nan"), pd.NA, pd.NaT, Decimal("NaN")], dtype=object), pa.string()),
    "large texts": (pd.Series(["a", None], dtype=object), pa.large_string()),
    "bytes as texts": (pd.Series([b"a", "b"], dtype=object), pa.string()),
    "nothing": (pd.Series([], dtype=object), pa.string()),
    "another width": (pd.Series([1, 2], dtype="int32"), pa.int64()),
    "too large": (pd.Series([2**40]), pa.int32()),
    "not only texts": (pd.Series(["a", 1], dtype=object), pa.string()),
    "a lone surrogate": (pd.Series(["\ud800"], dtype=object), pa.string()),
    "categories": (pd.Series(["a", "b"], dtype="category"), pa.string()),
    "texts of pandas": (pd.Series(["a", None], dtype="string"), pa.string()),
    "nullable numbers": (pd.Series([1, None], dtype="Int64"), pa.int64()),
    "times": (pd.Series(pd.to_datetime(["2026-01-01"])), pa.timestamp("us", tz="UTC")),
}


@pytest.mark.parametrize(("series", "arrow_type"), _SERIES.values(), ids=_SERIES)
def test_a_series_becomes_the_batch_that_pyspark_makes(series: pd.Series, arrow_type: pa.DataType) -> None:
    short, stock = _both(lambda serializer: serializer._create_batch((series, arrow_type)))
    assert short == stock


_COLUMNS = {
    "longs": pa.array([1, 2, 3]),
    "shorts": pa.array([1, 2], pa.int16()),
    "floats": pa.array([1.5, float("nan")], pa.float32()),
    "longs with nulls": pa.array([1, None]),
    "texts": pa.array(["a", None, "é"]),
    "many texts": pa.array([f"text {n}" for n in range(300)]),
    "equal texts": pa.array(["a"] * 300),
    "large texts": pa.array(["a", None], pa.large_string()),
    "nothing": pa.array([], pa.string()),
    "booleans": pa.array([True, None]),
    "lists": pa.array([["a"], None]),
}


def _to_pandas(column: pa.ChunkedArray, serializer: Any) -> Any:
    return serializer.arrow_to_pandas(column, *_NUMBER)


@pytest.mark.parametrize("array", _COLUMNS.values(), ids=_COLUMNS)
def test_a_column_becomes_the_series_that_pyspark_makes(array: pa.Array) -> None:
    (column,) = pa.Table.from_batches([pa.record_batch([array], ["x"])]).itercolumns()
    for each in (column, column.slice(1), pa.chunked_array([array, array])):
        short, stock = _both(partial(_to_pandas, each))
        pd.testing.assert_series_equal(short, stock, check_index_type=True)


def test_the_fast_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    serializer = _Short(**_OPTIONS)
    monkeypatch.setattr(pd.Series, "isnull", None)
    array = serializer._create_array(pd.Series(["a"], dtype=object), pa.string())
    assert array.to_pylist() == ["a"]
    assert serializer.arrow_to_pandas(pa.chunked_array([array]), *_NUMBER).tolist() == ["a"]
    assert serializer._create_array(pd.Series([1]), pa.int64()).to_pylist() == [1]


def test_values_of_a_user_defined_type_are_left_to_pyspark() -> None:
    class Upper(types.UserDefinedType):  # type: ignore[misc]
        @classmethod
        def sqlType(cls) -> types.DataType:  # noqa: N802 - PySpark names it
            return types.StringType()

        def serialize(self, obj: str) -> str:
            return obj.upper()

    series = pd.Series(["a"], dtype=object)
    short, stock = _both(
        lambda serializer: serializer._create_array(series, pa.string(), spark_type=Upper()).to_pylist()
    )
    assert short == stock
