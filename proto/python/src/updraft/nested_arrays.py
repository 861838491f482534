# SPDX-License-Identifier: Apache-2.0
"""Functions that read or replace the arrays inside structs, maps and lists, or repair list offsets.

Lists without rows may have bad offsets: Arrow for Java before 19 sends such lists without offsets, and a hostile client
may send any offsets. Arrow's validation accepts such lists, but `nbytes`, `to_pandas`, `flatten` and other methods then
read the first offset and crash the process.
"""

import pyarrow as pa
from pyarrow import types as kinds


def is_list(kind: pa.DataType) -> bool:
    """Return whether the type is a list of variable length, large or not."""
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind))


def fields_inside(kind: pa.DataType) -> list[pa.Field]:
    """Return the members of a struct, the key and value of a map, or the item of a list; empty for other types."""
    if kinds.is_struct(kind):
        return list(kind)
    if kinds.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if is_list(kind) or kinds.is_fixed_size_list(kind) else []


def with_fields_inside(kind: pa.DataType, fields: list[pa.Field]) -> pa.DataType:
    """Return the type with other fields inside, in the order of `fields_inside`."""
    if kinds.is_struct(kind):
        return pa.struct(fields)
    if kinds.is_map(kind):
        return pa.map_(*fields, keys_sorted=kind.keys_sorted)
    (items,) = fields
    if kinds.is_fixed_size_list(kind):
        return pa.list_(items, kind.list_size)
    return pa.large_list(items) if kinds.is_large_list(kind) else pa.list_(items)


def arrays_inside(array: pa.Array) -> list[pa.Array]:
    """Return one array for each of `fields_inside`; a struct's members already have the struct's offset applied."""
    kind = array.type
    if kinds.is_struct(kind):
        return [array.field(number) for number in range(kind.num_fields)]
    if kinds.is_map(kind):
        return [array.keys, array.items]
    return [array.values] if is_list(kind) or kinds.is_fixed_size_list(kind) else []


def with_arrays_inside(array: pa.Array, kind: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """Return the array with another type and other arrays inside, in the order of `arrays_inside`."""
    if kinds.is_struct(kind):
        validity = array.is_valid().buffers()[1] if array.null_count else None
        return pa.Array.from_buffers(kind, len(array), [validity], array.null_count, children=children)
    if kinds.is_map(kind):
        entry = pa.struct([kind.key_field, kind.item_field])
        children = [pa.Array.from_buffers(entry, len(children[0]), [None], 0, children=children)]
    buffers = array.buffers()[: 1 if kinds.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, children)


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch, or a repaired copy if a list has no offsets or is empty with a first offset other than 0."""
    return pa.concat_batches([batch]) if lacks_offsets(batch) else batch


def lacks_offsets(batch: pa.RecordBatch) -> bool:
    """Return whether a list, at any depth, needs the repair; return True if Python cannot inspect a column."""
    try:
        return any(map(_array_lacks_offsets, batch.columns))
    except KeyError:
        # pyarrow has no Python class for some arrays, such as intervals of months, and raises KeyError for them. A
        # repaired copy is correct even if the batch needed no repair.
        return True


def _array_lacks_offsets(array: pa.Array) -> bool:
    match array:
        # MapArray is a subclass of ListArray.
        case pa.ListArray() | pa.LargeListArray():
            offsets = array.buffers()[1]
            is_odd = not offsets or (not len(array) and bool(array.offsets[0].as_py()))
            return is_odd or _array_lacks_offsets(array.values)
        case pa.FixedSizeListArray():
            return _array_lacks_offsets(array.values)
        case pa.StructArray():
            return any(_array_lacks_offsets(array.field(index)) for index in range(array.type.num_fields))
        case pa.ExtensionArray():
            return _array_lacks_offsets(array.storage)
        case _:
            return False
