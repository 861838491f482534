# SPDX-License-Identifier: Apache-2.0
"""Which Arrow types hold the same values, and where a null may not be.

Text of each kind (string, large_string, string_view) is the same, and so are binary of each kind, lists and large
lists. Names of a list's items and nullability inside a value are no part of its type. Nothing else is cast.
"""

import functools

import pyarrow as pa
from pyarrow import types as kinds

from updraft.nested_arrays import arrays_inside, fields_inside, is_list, with_arrays_inside


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of the one are values of the other."""
    return bool(one.equals(other) or _canonical(one).equals(_canonical(other)))


def retyped(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The array with a type that is the same (`same_type`); nulls that `wanted` forbids have to be looked for before.

    Raises pyarrow.ArrowInvalid where a large value does not fit.
    """
    if array.type.equals(wanted):
        return array
    if not _allows_all_nulls(wanted):
        return _read_as(array.cast(_relaxed(wanted)), wanted)
    return array.cast(wanted)


def forbidden_null(array: pa.Array, field: pa.Field) -> str:
    """Where a null is that the field forbids, such as "price" or "items[].price"; empty: nowhere."""
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
    """Whether no field inside the type is declared without nulls."""
    # A key is never null, whatever its type allows.
    members = [kind.item_field] if kinds.is_map(kind) else fields_inside(kind)
    return all(member.nullable and _allows_all_nulls(member.type) for member in members)


def _relaxed(kind: pa.DataType) -> pa.DataType:
    """The type with nulls allowed everywhere inside."""
    if kinds.is_struct(kind):
        return pa.struct([pa.field(member.name, _relaxed(member.type)) for member in kind])
    if kinds.is_map(kind):
        return pa.map_(kind.key_type, pa.field(kind.item_field.name, _relaxed(kind.item_type)))
    if kinds.is_large_list(kind):
        return pa.large_list(pa.field(kind.value_field.name, _relaxed(kind.value_type)))
    if kinds.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _relaxed(kind.value_type)))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _relaxed(kind.value_type)), kind.list_size)
    return kind


def _read_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same buffers with a type that forbids some nulls.

    Array.view and casts refuse nulls that are in no value: Spark writes one into each member of a struct that is null.
    """
    if array.type.equals(kind):
        return array
    inside = [
        _read_as(child, field.type) for child, field in zip(arrays_inside(array), fields_inside(kind), strict=True)
    ]
    return with_arrays_inside(array, kind, inside)


def nan_as_null(array: pa.Array) -> pa.Array:
    """The array with a null for each NaN among the items of a list, where its type allows a null there."""
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
    # An import of `updraft.functions` does not wait for it.
    import pyarrow.compute as pc

    is_nan = pc.is_nan(numbers)
    return pc.if_else(is_nan, pa.scalar(None, numbers.type), numbers) if is_nan.true_count else numbers


@functools.lru_cache(maxsize=1024)
def _canonical(kind: pa.DataType) -> pa.DataType:
    """One type for all that are the same."""
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
