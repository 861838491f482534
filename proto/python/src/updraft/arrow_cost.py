# SPDX-License-Identifier: Apache-2.0
"""What a batch costs in memory beyond its bytes, known from its metadata before anything is allocated for it.

Arrow has types whose values take less than a byte each, or none: null, boolean, binaries of width 0, structs without
fields. A batch of no bytes can therefore claim any number of values, and whoever encodes or converts them pays for each
one. Values of all other types have bytes behind them, which Arrow's validation checks, so their cost is in their bytes.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

# Measured with Parquet's encoder: levels of 2 bytes, and the conversion of a boolean to a byte.
_BYTES_PER_VALUE = 4
# Below a list there are repetition levels too, and the sample of the encodings has an index of each value.
_BYTES_PER_LISTED_VALUE = 16


class NarrowLeaf(NamedTuple):
    """A leaf whose values take less than a byte each."""

    node: int
    """Its place among the arrays of a batch, in the order of the metadata."""
    value_bytes: int
    """Memory that a value costs while it is encoded."""


def narrow_leaves(schema: pa.Schema) -> tuple[NarrowLeaf, ...]:
    """The leaves whose cost is not in their bytes; most schemas have none."""
    arrays = (found for field in schema for found in _arrays(field.type))
    return tuple(
        NarrowLeaf(node, _BYTES_PER_LISTED_VALUE if listed else _BYTES_PER_VALUE)
        for node, (data_type, listed) in enumerate(arrays)
        if _is_narrow(data_type)
    )


def unbacked_bytes(leaves: Sequence[NarrowLeaf], lengths: Sequence[int]) -> int:
    """Memory for the values of narrow leaves; `lengths` are those of all arrays of the batch."""
    return sum(leaf.value_bytes * lengths[leaf.node] for leaf in leaves)


def children(data_type: pa.DataType) -> list[pa.DataType]:
    """The types of the arrays directly below one of this type, as Arrow's metadata counts them."""
    if isinstance(data_type, pa.BaseExtensionType):
        return children(data_type.storage_type)
    if isinstance(data_type, pa.RunEndEncodedType):
        return [data_type.run_end_type, data_type.value_type]
    if isinstance(data_type, pa.MapType):
        return [pa.struct([data_type.key_field, data_type.item_field])]
    return [data_type.field(index).type for index in range(data_type.num_fields)]


def _arrays(data_type: pa.DataType, *, listed: bool = False) -> Iterator[tuple[pa.DataType, bool]]:
    """The type of each array of a column, and whether it lies below something other than structs."""
    yield data_type, listed
    listed = listed or not pa.types.is_struct(_storage(data_type))
    for child in children(data_type):
        yield from _arrays(child, listed=listed)


def _is_narrow(data_type: pa.DataType) -> bool:
    stored = _storage(data_type)
    if pa.types.is_fixed_size_binary(stored):
        return bool(stored.byte_width == 0)
    without_fields = pa.types.is_struct(stored) and not stored.num_fields
    return without_fields or pa.types.is_null(stored) or pa.types.is_boolean(stored)


def _storage(data_type: pa.DataType) -> pa.DataType:
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type
