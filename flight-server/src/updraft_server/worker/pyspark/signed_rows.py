# SPDX-License-Identifier: Apache-2.0
"""Reads pickled rows without running what whoever sends them likes.

Where only drivers may introduce code, executors still pickle the rows of `SQL_BATCHED_UDF` and `SQL_TABLE_UDF`, and a
pickle can call any function. This one may call only what Spark's own pickler names for values, and gets functions
without a state in their places: nothing that a row does to them lasts.
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
    """Let PySpark's worker read rows like this: what it reads of the command has a serializer of its own."""
    pyspark.worker.CPickleSerializer = SignedRows


# PySpark does not say what its classes are.
class SignedRows(CPickleSerializer):  # type: ignore[misc]
    """PySpark's serializer of rows for senders that may introduce no code."""

    def loads(self, obj: bytes, encoding: str = "bytes") -> Any:
        """The rows; raises pickle.UnpicklingError for what is none."""
        # One that can be looked ahead in: the unpickler would make a call for each of its few bytes otherwise.
        return _Unpickler(io.BufferedReader(io.BytesIO(obj)), encoding=encoding).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Reducer:
        found = _VALUES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(
                f"rows name {module}.{name}, which no value of Spark's needs: this pool runs only code that a driver "
                "has signed"
            )
        return found


class _StructType:
    """Spark's type of a row, as a pickle may hold it.

    A pickle sets attributes on whatever it holds, and of simple types Spark has one object for the whole process.
    """

    __slots__ = ("_type",)

    def __init__(self, data_type: types.DataType) -> None:
        self._type = data_type

    def __setstate__(self, _state: object) -> None:
        raise pickle.UnpicklingError("rows change the type of a struct, which no value of Spark's needs")

    def converter(self) -> _Reducer:
        """What makes a row of a struct's values: made anew, so that nobody else gets what the pickle sets on it."""
        return cast("_Reducer", types._create_row_inbound_converter(self._type))


def _row_converter(data_type: object) -> _Reducer:
    if not isinstance(data_type, _StructType):
        raise pickle.UnpicklingError("rows have a struct without a struct type")
    return data_type.converter()


def _data_type(text: str) -> _StructType:
    if _is_of_somebodys_own(text):
        # Its class is named, or pickled, in the text.
        raise pickle.UnpicklingError(
            "rows have a struct with a user-defined type, whose class is not signed: pass its fields on their own, "
            "or use a function on Arrow batches"
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
    """What Spark's pickler, and that of the JVM which it builds upon, write for values."""
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
        # As the JVM calls them, whose pickles are for Python 2 as well.
        ("__builtin__", "bytearray"): bytearray,
        ("__builtin__", "set"): set,
        ("pyspark.sql.types", "_parse_datatype_json_string"): _data_type,
        ("pyspark.sql.types", "_create_row_inbound_converter"): _row_converter,
        ("pyspark.sql.types", "VariantVal"): getattr(types, "VariantVal", _unknown),
    }
    return {name: _stateless(function) for name, function in called.items()}


def _unknown(*_: Any) -> Any:
    raise pickle.UnpicklingError("this pyspark does not know such values")


def _stateless(function: Callable[..., Any]) -> _Reducer:
    # What a pickle sets on it, it does not read.
    return lambda *arguments: function(*arguments)


_VALUES = _names()
