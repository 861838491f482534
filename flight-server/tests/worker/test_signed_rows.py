# SPDX-License-Identifier: Apache-2.0
"""Pickled rows from senders that may not introduce code: values are read, and nothing is called."""

import datetime
import decimal
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.serializers import CPickleSerializer
from pyspark.sql import types

from updraft_server.worker.pyspark.signed_rows import SignedRows

ROWS = SignedRows()


class Calls:
    """Object that pickles as a call of a function, which the reader would make."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


def global_name(module: str, name: str) -> bytes:
    """Return a global as the JVM's pickler writes it."""
    return f"c{module}\n{name}\n".encode()


def unicode_text(text: str) -> bytes:
    """Return a string as the JVM's pickler writes it."""
    return b"X" + len(text.encode()).to_bytes(4, "little") + text.encode()


def data_type(described: Any) -> bytes:
    """Return opcodes that push Spark's type of this description."""
    name = global_name("pyspark.sql.types", "_parse_datatype_json_string")
    return name + unicode_text(json.dumps(described)) + b"\x85R"


def struct_of(described: Any) -> bytes:
    """Return a row of one field, as Spark's own pickler writes it."""
    converter = global_name("pyspark.sql.types", "_create_row_inbound_converter")
    return b"\x80\x02" + converter + data_type(described) + b"\x85RK\x07\x85R."


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, 2.5, "text", b"bytes", True, 1 << 80],
        [{"a": [1, {"b": 2}]}],
        [decimal.Decimal("1.50"), datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5, 6)],
        [datetime.timedelta(days=1, microseconds=2), datetime.time(1, 2), bytearray(b"x"), {1, 2}],
    ],
)
def test_values_are_read_as_pyspark_reads_them(value: Any) -> None:
    pickled = pickle.dumps(value, 4)
    assert ROWS.loads(pickled) == CPickleSerializer().loads(pickled) == value


def test_a_struct_is_read_as_a_row() -> None:
    described = types.StructType([types.StructField("x", types.LongType())]).jsonValue()
    pickled = struct_of(described)
    assert ROWS.loads(pickled) == CPickleSerializer().loads(pickled) == types.Row(x=7)


@pytest.mark.parametrize(
    "call",
    [
        (os.system, "true"),
        (eval, "1"),
        (getattr, decimal.Decimal, "mro"),
        (__import__, "os"),
        (cloudpickle.loads, b""),
        (pickle.loads, b"N."),
        (types.UserDefinedType.fromJson, {}),
        (CPickleSerializer,),
    ],
    ids=lambda call: getattr(call[0], "__qualname__", ""),
)
def test_a_row_calls_nothing(call: tuple[Any, ...]) -> None:
    function, *arguments = call
    for protocol in (0, 2, 4):
        with pytest.raises(pickle.UnpicklingError, match="only code that a driver has signed"):
            ROWS.loads(pickle.dumps([Calls(function, *arguments)], protocol))


@pytest.mark.parametrize("name", ["json.loads", "_data_type.__globals__", "StructType.fromJson"])
def test_a_row_reaches_nothing_through_what_it_may_name(name: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="only code that a driver has signed"):
        ROWS.loads(b"\x80\x04\x8c\x11pyspark.sql.types\x8c" + bytes([len(name)]) + name.encode() + b"\x93.")


def test_a_row_brings_no_class_of_a_user_defined_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_a_row.py").write_text(
        "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    udt = {"type": "udt", "pyClass": "module_of_a_row.B", "sqlType": "long"}
    for nested in (udt, {"type": "array", "elementType": udt, "containsNull": True}):
        field = {"name": "x", "type": nested, "nullable": True, "metadata": {}}
        pickled = struct_of({"type": "struct", "fields": [field]})
        with pytest.raises(pickle.UnpicklingError, match="whose class is not signed"):
            ROWS.loads(pickled)
    assert not (tmp_path / "module_of_a_row.ran").exists()
    # An ordinary unpickler runs the attempt.
    with pytest.raises(Exception, match=r"\w"):
        CPickleSerializer().loads(pickled)
    assert (tmp_path / "module_of_a_row.ran").exists()


def test_what_a_row_sets_does_not_last() -> None:
    # GLOBAL, then BUILD with the state (None, {"__defaults__": ..., "mro": 1}).
    pickled = b"\x80\x02cdecimal\nDecimal\nN}(X\x03\x00\x00\x00mroK\x01u\x86b."
    ROWS.loads(pickled)
    assert not hasattr(decimal.Decimal("1"), "__dict__")
    assert ROWS.loads(pickle.dumps(decimal.Decimal("1.5"), 2)) == decimal.Decimal("1.5")


@pytest.mark.parametrize("name", ["date", "timestamp", "integer", "binary"])
def test_a_row_changes_no_type_that_later_exchanges_use(name: str) -> None:
    # BUILD with the state (None, {"fromInternal": Decimal}), on an object that Spark shares within the process.
    state = b"N}(" + unicode_text("fromInternal") + global_name("decimal", "Decimal") + b"u\x86b."
    with pytest.raises(pickle.UnpicklingError, match="change the type of a struct"):
        ROWS.loads(b"\x80\x02" + data_type(name) + state)
    assert "fromInternal" not in vars(types._parse_datatype_json_value(name))


def test_a_row_is_made_by_no_type_of_its_own() -> None:
    # A set in place of a struct type.
    converter = global_name("pyspark.sql.types", "_create_row_inbound_converter")
    with pytest.raises(pickle.UnpicklingError, match="a struct without a struct type"):
        ROWS.loads(b"\x80\x02" + converter + global_name("builtins", "set") + b")R\x85R.")
