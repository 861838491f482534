# SPDX-License-Identifier: Apache-2.0
"""Refuses columns whose rows share values: a file has a copy for each row, which the bytes of a batch do not show."""

from collections.abc import Callable

import pyarrow as pa

from updraft.arrow_cost import children
from updraft.errors import LimitError, WriteOptionError
from updraft_writer.encoders.leaves import leaf_arrays, schema_leaves

# A view is its length, four bytes of the value, and a place: 16 bytes, read here as four numbers.
_NUMBERS_PER_VIEW = 4


def refuse_shared_types(schema: pa.Schema) -> None:
    """Raise WriteOptionError for list views and dense unions, which say only in their data what they share."""
    for field in schema:
        if _has(field.type, lambda found: pa.types.is_list_view(found) or pa.types.is_large_list_view(found)):
            raise WriteOptionError(f"column {field.name!r} has list views, which share values: send lists instead")
        if _has(field.type, lambda found: pa.types.is_union(found) and found.mode == "dense"):
            raise WriteOptionError(f"column {field.name!r} has a dense union, which shares values: send a sparse one")


def has_views(schema: pa.Schema) -> bool:
    """Whether a leaf has string or binary views."""
    return any(map(_is_view, schema_leaves(schema)))


def refuse_shared_views(batch: pa.RecordBatch, *, body_bytes: int) -> None:
    """Raise LimitError if the views of a batch stand for more bytes than it carries; raises nothing else."""
    claimed_bytes = sum(
        map(_viewed_bytes, (leaf for column in batch.columns for leaf in leaf_arrays(column) if _is_view(leaf.type)))
    )
    if claimed_bytes > body_bytes:
        raise LimitError(
            f"the string and binary views of a batch stand for {claimed_bytes} bytes, and the batch carries "
            f"{body_bytes}: send strings and binaries without views"
        )


def _viewed_bytes(leaf: pa.Array) -> int:
    if not len(leaf):
        return 0
    numbers = memoryview(leaf.buffers()[1]).cast("B").cast("i")
    first = _NUMBERS_PER_VIEW * leaf.offset
    return sum(numbers[first : first + _NUMBERS_PER_VIEW * len(leaf) : _NUMBERS_PER_VIEW])


def _is_view(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(data_type) or pa.types.is_binary_view(data_type))


def _has(data_type: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    return is_kind(data_type) or any(_has(child, is_kind) for child in children(data_type))
