# SPDX-License-Identifier: Apache-2.0
"""Refusal of columns whose rows share values.

A file contains a copy of a shared value for each row, so the file may be far larger than its batches.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa

from updraft.arrow_cost import children
from updraft.errors import LimitError, WriteOptionError
from updraft_writer.encoders.leaves import schema_leaves

# A view consists of 16 bytes: a length, four bytes of the value, and a position. This module reads a view as four
# numbers.
_NUMBERS_PER_VIEW = 4


def refuse_shared_types(schema: pa.Schema) -> None:
    """Raise WriteOptionError for list views and dense unions, whose types do not show whether rows share values."""
    for field in schema:
        if _has(field.type, lambda found: pa.types.is_list_view(found) or pa.types.is_large_list_view(found)):
            raise WriteOptionError(f"column {field.name!r} has list views, which share values: send lists instead")
        if _has(field.type, lambda found: pa.types.is_union(found) and found.mode == "dense"):
            raise WriteOptionError(f"column {field.name!r} has a dense union, which shares values: send a sparse one")


def has_views(schema: pa.Schema) -> bool:
    """Return whether a leaf has string or binary views."""
    return any(map(_is_view, schema_leaves(schema)))


def refuse_shared_views(batch: pa.RecordBatch, *, body_bytes: int) -> None:
    """Raise LimitError if the views of a batch refer to more bytes than the batch contains. Raises no other error.

    The batch need not be validated before this check. Validating views that share a long string takes as long as
    copying the string for each view.
    """
    claimed_bytes = sum(_viewed_bytes(array) for column in batch.columns for array in _views(column))
    if claimed_bytes > body_bytes:
        raise LimitError(
            f"the string and binary views of a batch stand for {claimed_bytes} bytes, but the batch carries "
            f"{body_bytes}: send strings and binaries without views"
        )


def _views(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of views in a column, whole, because the offsets of surrounding lists are not trusted."""
    match array:
        case pa.ExtensionArray():
            yield from _views(array.storage)
        case pa.MapArray():
            yield from _views(array.keys)
            yield from _views(array.items)
        case pa.ListArray() | pa.LargeListArray() | pa.FixedSizeListArray() | pa.RunEndEncodedArray():
            yield from _views(array.values)
        case pa.StructArray() | pa.UnionArray():
            for index in range(array.type.num_fields):
                yield from _views(array.field(index))
        case pa.StringViewArray() | pa.BinaryViewArray():
            yield array


def _viewed_bytes(views: pa.Array) -> int:
    if not len(views):
        return 0
    # Read lengths as unsigned numbers, because a negative length would cancel out other lengths.
    numbers = memoryview(views.buffers()[1]).cast("B").cast("I")
    first = _NUMBERS_PER_VIEW * views.offset
    return sum(numbers[first : first + _NUMBERS_PER_VIEW * len(views) : _NUMBERS_PER_VIEW])


def _is_view(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(data_type) or pa.types.is_binary_view(data_type))


def _has(data_type: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    return is_kind(data_type) or any(_has(child, is_kind) for child in children(data_type))
