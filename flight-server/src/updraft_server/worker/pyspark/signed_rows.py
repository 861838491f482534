# SPDX-License-Identifier: Apache-2.0
"""Unpickling of rows without running code that their sender chooses.

A pool may allow only drivers to introduce code. Yet executors pickle the rows of `SQL_BATCHED_UDF` and `SQL_TABLE_UDF`,
and a pickle can call any function. This unpickler allows only the callables that Spark's own pickler names for values.
It replaces these callables by stateless functions, so that a row cannot change a callable for later rows.
"""

import array
import datetime
import decimal
import functools
import io
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any, cast

import pyspark.worker
from pyspark.serializers import CPickleSerializer
from pyspark.sql import types

_Reducer = Callable[..., Any]


def install() -> None:
    """Make PySpark's worker unpickle rows with `SignedRows`. The worker reads commands with another serializer."""
    pyspark.worker.CPickleSerializer = SignedRows


# PySpark's serializers have no types.
class SignedRows(CPickleSerializer):  # type: ignore[misc]
    """PySpark's serializer of rows, for senders that may not introduce code."""

    def loads(self, obj: bytes, encoding: str = "bytes") -> Any:
        """Return the rows; raises pickle.UnpicklingError for bytes that are not rows."""
        # BufferedReader has `peek`. Without that method, the unpickler would make a call for every few bytes.
        return _Unpickler(io.BufferedReader(io.BytesIO(obj)), encoding=encoding).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Reducer:
        found = _VALUES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(
                f"pickled rows refer to {module}.{name}, which no Spark value needs: this pool runs only code that a "
                "driver has signed"
            )
        return found


class _StructType:
    """Wrapper that a pickle receives instead of Spark's type of a row.

    A pickle can set attributes on any object that it receives. Each of Spark's simple types is one object for the whole
    process, so a pickle could change it for later rows.
    """

    __slots__ = ("_type",)

    def __init__(self, data_type: types.DataType) -> None:
        self._type = data_type

    def __setstate__(self, _state: object) -> None:
        raise pickle.UnpicklingError("pickled rows change the type of a struct, which no Spark value needs")

    def converter(self) -> _Reducer:
        """Return a new function that makes rows of a struct's values. A pickle can change only this new function."""
        return cast("_Reducer", types._create_row_inbound_converter(self._type))


def _row_converter(data_type: object) -> _Reducer:
    if not isinstance(data_type, _StructType):
        raise pickle.UnpicklingError("pickled rows have a struct without a struct type")
    return data_type.converter()


def _data_type(text: str) -> _StructType:
    if _is_of_somebodys_own(text):
        # The text names the type's class, or contains it in pickled form.
        raise pickle.UnpicklingError(
            "pickled rows have a struct with a user-defined type, whose class is not signed: pass its fields "
            "as separate columns, or use a function on Arrow batches"
        )
    return _StructType(types._parse_datatype_json_string(text))


@functools.lru_cache(maxsize=1024)
def _is_of_somebodys_own(text: str) -> bool:
    return _has_user_defined(json.loads(text))


def _has_user_defined(described: Any) -> bool:
    if isinstance(described, dict):
        return described.get("type") == "udt" or any(map(_has_user_defined, described.values()))
    return isinstance(described, list) and any(map(_has_user_defined, described))


def _names() -> Mapping[tuple[str, str], _Reducer]:
    """Return the callables that a pickle of rows may name: those that Spark's pickler and its JVM base class write."""
    called: dict[tuple[str, str], Callable[..., Any]] = {
        ("decimal", "Decimal"): decimal.Decimal,
        ("datetime", "date"): datetime.date,
        ("datetime", "datetime"): datetime.datetime,
        ("datetime", "time"): datetime.time,
        ("datetime", "timedelta"): datetime.timedelta,
        ("array", "array"): array.array,
        ("builtins", "bytearray"): bytearray,
        ("builtins", "bytes"): bytes,
        ("builtins", "set"): set,
        # Names in the JVM's pickles, which Python 2 can read too.
        ("__builtin__", "bytearray"): bytearray,
        ("__builtin__", "set"): set,
        ("pyspark.sql.types", "_parse_datatype_json_string"): _data_type,
        ("pyspark.sql.types", "_create_row_inbound_converter"): _row_converter,
        ("pyspark.sql.types", "VariantVal"): getattr(types, "VariantVal", _unknown),
    }
    return {name: _stateless(function) for name, function in called.items()}


def _unknown(*_: Any) -> Any:
    raise pickle.UnpicklingError("this version of pyspark has no VariantVal values")


def _stateless(function: Callable[..., Any]) -> _Reducer:
    # A pickle can set attributes on the lambda, which `function` never reads.
    return lambda *arguments: function(*arguments)


_VALUES = _names()
