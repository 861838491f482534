# SPDX-License-Identifier: Apache-2.0
"""Conversion of Arrow columns to types that a GPU's library accepts.

The library supports neither maps nor binary values. A map becomes a list of entries, and a binary value becomes a
string. Neither conversion copies the values. The device narrows decimals. If a column cannot be converted, the error
names the column and the CPU encodes the file.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from updraft_writer.gpu.engine import DeviceColumn
from updraft_writer.reason import NotOnGpuError, ReasonKind

_FIELD_ID = b"PARQUET:field_id"
_AS_THEY_ARE = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.date32(),
}
_AS_TEXT = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}
_UNITS = ("ms", "us")


def device_columns(schema: pa.Schema, *, int96: bool = False) -> tuple[DeviceColumn, ...]:
    """Return the columns of a file, with points in time as INT96 if `int96` is set; raises NotOnGpuError."""
    if not len(schema):
        raise NotOnGpuError(ReasonKind.TYPE, "the GPU encoder cannot write a file without columns")
    return tuple(_column(field, field.name, int96=int96) for field in schema)


def device_table(table: pa.Table, columns: Sequence[DeviceColumn]) -> pa.Table:
    """Convert a table for the device."""
    arrays = [
        pa.chunked_array([_array(chunk, column) for chunk in stored.chunks], column.data_type)
        for stored, column in zip(table.columns, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema([column.field for column in columns]))


def has_binary(columns: Iterable[DeviceColumn]) -> bool:
    """Return whether any column has binary values at any depth."""
    return any(column.is_binary or has_binary(column.children) for column in columns)


def has_flags(columns: Iterable[DeviceColumn]) -> bool:
    """Return whether any column has booleans at any depth."""
    return any(pa.types.is_boolean(column.data_type) or has_flags(column.children) for column in columns)


def _refusal(what: str) -> NotOnGpuError:
    return NotOnGpuError(ReasonKind.TYPE, f"{what}, which the GPU encoder cannot write")


def _column(field: pa.Field, path: str, *, int96: bool) -> DeviceColumn:
    if _FIELD_ID in (field.metadata or {}):
        raise _refusal(f"column {path!r} has a field id")
    data_type, name, nullable = field.type, field.name, field.nullable
    if pa.types.is_map(data_type):
        return _map(field, path, int96=int96)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        # The library stores the name of a list's values unchanged. Spark and the CPU's encoder use the name `element`.
        child = _column(data_type.value_field.with_name("element"), f"{path}.element", int96=int96)
        of = pa.large_list if pa.types.is_large_list(data_type) else pa.list_
        return DeviceColumn(name, of(child.field), nullable, (child,))
    if pa.types.is_struct(data_type):
        return _struct(field, path, int96=int96)
    if data_type in _AS_TEXT:
        return DeviceColumn(name, _AS_TEXT[data_type], nullable, is_binary=True)
    if pa.types.is_decimal128(data_type):
        return DeviceColumn(name, data_type, nullable, precision=data_type.precision)
    if pa.types.is_timestamp(data_type) and data_type.unit in _UNITS:
        return DeviceColumn(name, data_type, nullable, is_int96=int96)
    if data_type in _AS_THEY_ARE:
        return DeviceColumn(name, data_type, nullable)
    raise _refusal(f"column {path!r} is {data_type}")


def _map(field: pa.Field, path: str, *, int96: bool) -> DeviceColumn:
    key, item = (
        _column(child.with_name(name), f"{path}.{name}", int96=int96)
        for name, child in (("key", field.type.key_field), ("value", field.type.item_field))
    )
    entries = DeviceColumn("key_value", pa.struct([key.field, item.field]), nullable=False, children=(key, item))
    return DeviceColumn(field.name, pa.list_(entries.field), field.nullable, (entries,), is_map=True)


def _struct(field: pa.Field, path: str, *, int96: bool) -> DeviceColumn:
    children = tuple(_column(child, f"{path}.{child.name}", int96=int96) for child in field.type)
    if not children:
        raise _refusal(f"column {path!r} is a struct without fields")
    # On the device a null struct has null fields, and the device rejects a null in a non-nullable field.
    if field.nullable and (required := [child.name for child in children if not child.nullable]):
        raise _refusal(f"the nullable column {path!r} has the non-nullable field {required[0]!r}")
    return DeviceColumn(field.name, pa.struct([child.field for child in children]), field.nullable, children)


def _array(array: pa.Array, column: DeviceColumn) -> pa.Array:
    if pa.types.is_struct(column.data_type):
        children = [_array(array.field(index), child) for index, child in enumerate(column.children)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(column.data_type), mask=mask)
    if column.children:
        return _list(_without_hidden_values(array), column)
    if column.is_binary:
        return pa.Array.from_buffers(column.data_type, len(array), array.buffers(), array.null_count, array.offset)
    return array


def _list(array: pa.Array, column: DeviceColumn) -> pa.Array:
    [child] = column.children
    if column.is_map:
        key, item = child.children
        keys, items = _array(array.keys, key), _array(array.items, item)
        values = pa.StructArray.from_arrays([keys, items], fields=list(child.data_type))
    else:
        values = _array(array.values, child)
    # A slice shares its values with the whole array, so pass the slice's offset on.
    return pa.Array.from_buffers(
        column.data_type, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
    )


def _without_hidden_values(array: pa.Array) -> pa.Array:
    """Make null lists empty: Arrow allows hidden values in a null list, and the device would read these values."""
    if not array.null_count:
        return array
    offsets = array.offsets
    lengths = pc.subtract(offsets[1:], offsets[:-1])
    hidden = pc.any(pc.and_(array.is_null(), pc.greater(lengths, 0))).as_py()
    return array.take(pa.array(range(len(array)), pa.int64())) if hidden else array
