# SPDX-License-Identifier: Apache-2.0
"""Leaf columns of nested Arrow columns, in Parquet's order, and functions that change them."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from updraft.errors import EncodeError, WriteOptionError
from updraft.nested_arrays import fields_inside, is_list, with_fields_inside


def leaf_types(data_type: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the leaves under a column's type."""
    if isinstance(data_type, pa.BaseExtensionType):
        yield from leaf_types(data_type.storage_type)
    elif pa.types.is_map(data_type):
        yield from leaf_types(data_type.key_type)
        yield from leaf_types(data_type.item_type)
    elif data_type.num_fields:
        for index in range(data_type.num_fields):
            yield from leaf_types(data_type.field(index).type)
    else:
        yield data_type


def schema_leaves(schema: pa.Schema) -> Iterator[pa.DataType]:
    """Return the types of the leaves of all columns, in order."""
    return (leaf for field in schema for leaf in leaf_types(field.type))


def is_text(leaf: pa.DataType) -> bool:
    """Return whether the values of a leaf are strings or binaries of variable length."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(leaf) for is_kind in kinds)


def leaf_arrays(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of a column's leaves. A value below a null is either omitted or null."""
    if isinstance(array, pa.ExtensionArray):
        yield from leaf_arrays(array.storage)
    elif pa.types.is_map(array.type):
        # A sliced map shares its entries with the whole array.
        start, end = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
        yield from leaf_arrays(array.keys.slice(start, end - start))
        yield from leaf_arrays(array.items.slice(start, end - start))
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from leaf_arrays(child)
    elif array.type.num_fields:
        yield from leaf_arrays(array.flatten())
    else:
        yield array


def with_leaf_fields(field: pa.Field, change: Callable[[pa.Field], pa.Field]) -> pa.Field:
    """Apply `change` to each leaf of a field.

    Raises WriteOptionError if a leaf would change inside a nested type that Spark does not have.
    """
    data_type = field.type
    if pa.types.is_struct(data_type) or pa.types.is_map(data_type) or is_list(data_type):
        inside = [with_leaf_fields(child, change) for child in fields_inside(data_type)]
        return field.with_type(with_fields_inside(data_type, inside))
    if any(change(pa.field("", leaf)).type != leaf for leaf in leaf_types(data_type) if leaf != data_type):
        raise WriteOptionError(f"column {field.name!r}: dates and timestamps inside {data_type} are not supported")
    return change(field)


def has_required_fields(data_type: pa.DataType) -> bool:
    """Return whether a struct at any depth of a column has a non-nullable field."""
    required = pa.types.is_struct(data_type) and not all(field.nullable for field in data_type)
    children = range(data_type.num_fields)
    return required or any(has_required_fields(data_type.field(index).type) for index in children)


def with_leaves(
    array: pa.Array, stored: pa.DataType, change: Callable[[pa.Array, pa.DataType], pa.Array], *, required: bool = False
) -> pa.Array:
    """Convert a column to the type `stored`, which has the same nesting, and apply `change` to each leaf.

    With `required`, the result contains no validity information. Raises EncodeError for a null in a non-nullable field.
    """
    if pa.types.is_map(stored):
        keys = with_leaves(array.keys, stored.key_type, change)
        items = with_leaves(array.items, stored.item_type, change)
        entries = pa.StructArray.from_arrays([keys, items], fields=[stored.key_field, stored.item_field])
        return _rebuilt(array, stored, required=required, children=[entries])
    if pa.types.is_list(stored) or pa.types.is_large_list(stored):
        values = with_leaves(array.values, stored.value_type, change)
        return _rebuilt(array, stored, required=required, children=[values])
    if pa.types.is_struct(stored):
        children = [_child(array, index, field, change) for index, field in enumerate(stored)]
        mask = array.is_null() if array.null_count and not required else None
        return pa.StructArray.from_arrays(children, fields=list(stored), mask=mask)
    changed = change(array, stored)
    return _rebuilt(changed, stored, required=True) if required else changed


def table_with_leaves(
    table: pa.Table,
    schema: pa.Schema,
    change: Callable[[pa.Array, pa.DataType], pa.Array],
    *,
    changes: Callable[[pa.DataType], bool],
) -> pa.Table:
    """Convert a table to the stored schema by applying `change` to the leaves of its columns.

    If a column already has its stored type, `change` is applied only if `changes` returns true for that type. Raises
    EncodeError for a null in a non-nullable field.
    """
    columns = [
        pa.chunked_array([with_leaves(chunk, field.type, change) for chunk in column.chunks], field.type)
        if column.type != field.type or changes(column.type)
        else column
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _child(
    struct: pa.StructArray, index: int, field: pa.Field, change: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """Convert a field of a struct.

    Below a null struct, Arrow reports even a non-nullable field as null. Parquet stores no null for such a field.
    """
    child = struct.field(index)
    required = bool(child.null_count) and not field.nullable
    if required and pc.any(pc.and_(child.is_null(), struct.is_valid())).as_py():
        raise EncodeError(f"the field {field.name!r} is declared as never null, but has a null")
    return with_leaves(child, field.type, change, required=required)


def _rebuilt(array: pa.Array, stored: pa.DataType, *, required: bool, children: Sequence[pa.Array] = ()) -> pa.Array:
    """Rebuild an array with other children. A slice is allowed; it shares its children with the whole array."""
    own = array.buffers()[: 2 if children else None]
    buffers, nulls = ([None, *own[1:]], 0) if required else (own, array.null_count)
    return pa.Array.from_buffers(stored, len(array), buffers, nulls, array.offset, children=children or None)
