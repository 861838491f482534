# SPDX-License-Identifier: Apache-2.0
"""Equivalent Arrow types, and checks for forbidden nulls.

All kinds of text (string, large_string, string_view) are equivalent. So are all kinds of binary, and lists and large
lists. The name of a list's items and the nullability inside a value do not matter. Other types are never cast.
"""

import functools

import pyarrow as pa
from pyarrow import types as kinds

from updraft.nested_arrays import arrays_inside, fields_inside, is_list, with_arrays_inside, with_fields_inside


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether the two types are equivalent, so that a value of one is also a value of the other."""
    return bool(one.equals(other) or _canonical(one).equals(_canonical(other)))


def retyped(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert the array to an equivalent type (`same_type`); check for forbidden nulls before calling this.

    Raises:
        pyarrow.ArrowInvalid: A large array does not fit into the wanted type's offsets.
    """
    if array.type.equals(wanted):
        return array
    if not _allows_all_nulls(wanted):
        return _read_as(array.cast(_relaxed(wanted)), wanted)
    return array.cast(wanted)


def forbidden_null(array: pa.Array, field: pa.Field) -> str:
    """Return where the array has a null that the field forbids, such as "items[].price"; empty if it has none."""
    if array.null_count and not field.nullable:
        return str(field.name)
    return "" if _allows_all_nulls(field.type) else _null_inside(array, field)


def _null_inside(array: pa.Array, field: pa.Field) -> str:
    valid = array.drop_null() if array.null_count else array
    kind = valid.type
    if kinds.is_struct(kind):
        members = list(field.type)
        found = (forbidden_null(child, member) for child, member in zip(valid.flatten(), members, strict=True))
        return next((f"{field.name}.{where}" for where in found if where), "")
    if kinds.is_map(kind):
        entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        values = valid.view(pa.list_(entry)).flatten().flatten()[1]
        where = forbidden_null(values, field.type.item_field)
        return f"{field.name}.{where}" if where else ""
    where = forbidden_null(valid.flatten(), field.type.value_field.with_name("[]"))
    return f"{field.name}{where}" if where else ""


def _allows_all_nulls(kind: pa.DataType) -> bool:
    """Return whether every field inside the type may be null."""
    # The keys of a map are never null, so their fields do not matter.
    members = [kind.item_field] if kinds.is_map(kind) else fields_inside(kind)
    return all(member.nullable and _allows_all_nulls(member.type) for member in members)


def _relaxed(kind: pa.DataType) -> pa.DataType:
    """Return the type with nulls allowed everywhere inside, except for the keys of maps, which are never null."""
    fields = fields_inside(kind)
    relaxed = [pa.field(field.name, _relaxed(field.type)) for field in fields]
    if kinds.is_map(kind):
        relaxed[0] = fields[0]
    return with_fields_inside(kind, relaxed) if fields else kind


def _read_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array over the same buffers, with a type that forbids some nulls.

    Array.view and casts would also refuse nulls inside a null value. Spark writes such nulls: in a null struct, each
    member is null.
    """
    if array.type.equals(kind):
        return array
    inside = [
        _read_as(child, field.type) for child, field in zip(arrays_inside(array), fields_inside(kind), strict=True)
    ]
    return with_arrays_inside(array, kind, inside)


def nan_as_null(array: pa.Array) -> pa.Array:
    """Replace NaN among the items of lists by null, where the type allows null items."""
    kind = array.type
    has_items = is_list(kind) or kinds.is_fixed_size_list(kind)
    children = arrays_inside(array)
    inside = [
        _without_nan(child) if has_items and field.nullable and kinds.is_floating(field.type) else nan_as_null(child)
        for child, field in zip(children, fields_inside(kind), strict=True)
    ]
    is_same = all(new is old for new, old in zip(inside, children, strict=True))
    return array if is_same else with_arrays_inside(array, kind, inside)


def _without_nan(numbers: pa.Array) -> pa.Array:
    # Import this late, so that importing `updraft.functions` stays fast.
    import pyarrow.compute as pc

    is_nan = pc.is_nan(numbers)
    return pc.if_else(is_nan, pa.scalar(None, numbers.type), numbers) if is_nan.true_count else numbers


@functools.lru_cache(maxsize=1024)
def _canonical(kind: pa.DataType) -> pa.DataType:
    """Return one representative for all equivalent types."""
    if kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return pa.string()
    if kinds.is_large_binary(kind) or kinds.is_binary_view(kind):
        return pa.binary()
    if is_list(kind):
        return pa.list_(pa.field("item", _canonical(kind.value_type)))
    if kinds.is_struct(kind):
        return pa.struct([pa.field(member.name, _canonical(member.type)) for member in kind])
    if kinds.is_map(kind):
        return pa.map_(_canonical(kind.key_type), pa.field("value", _canonical(kind.item_type)))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(pa.field("item", _canonical(kind.value_type)), kind.list_size)
    return kind
