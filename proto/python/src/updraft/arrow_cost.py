# SPDX-License-Identifier: Apache-2.0
"""Memory cost of a batch beyond its bytes, computed from the batch's metadata before anything is allocated.

Arrow has types whose values take no bytes: null, binaries of width 0, lists of fixed size 0, structs without fields. A
batch without any bytes can therefore claim any number of such values, and code that encodes or converts the values pays
for each of them. Values of all other types take bytes, and Arrow's validation checks that these bytes exist, so the
size of the batch bounds their cost. Booleans are a special case: a boolean takes only one bit, so a converted column of
booleans takes many times the bytes of the original.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

# Measured with Parquet's encoder, which uses levels of 2 bytes and converts a boolean to a byte.
_BYTES_PER_VALUE = 4
# A value inside a list also costs a repetition level, and an index in the sample from which the encoder chooses
# encodings.
_BYTES_PER_LISTED_VALUE = 16
_BYTES_PER_LISTED_BOOLEAN = 6


class NarrowLeaf(NamedTuple):
    """Array whose values take less than a byte each."""

    node: int
    """Index among the arrays of a batch, in the order of the metadata."""
    value_bytes: int
    """Memory that encoding one value costs, in bytes."""
    is_backed: bool
    """Whether each value takes a bit of the batch, so that the batch contains at most as many values as bits."""


class Claims(NamedTuple):
    """Memory cost of a batch beyond its bytes."""

    unbacked_bytes: int
    """Memory for all values that take no bytes in the batch."""
    encoding_bytes: int
    """Memory to convert the most expensive narrow column; columns are converted one after another."""


NO_CLAIMS = Claims(0, 0)


def narrow_leaves(schema: pa.Schema) -> tuple[NarrowLeaf, ...]:
    """Return the arrays whose cost is not bounded by their bytes; most schemas have no such arrays."""
    arrays = (found for field in schema for found in _arrays(field.type))
    return tuple(
        NarrowLeaf(node, _value_bytes(data_type, listed=listed), pa.types.is_boolean(_storage(data_type)))
        for node, (data_type, listed) in enumerate(arrays)
        if _is_narrow(_storage(data_type))
    )


def claims_of(leaves: Sequence[NarrowLeaf], lengths: Sequence[int]) -> Claims:
    """Return the cost of narrow leaves; `lengths` lists the length of each array of the batch."""
    return Claims(
        sum(leaf.value_bytes * lengths[leaf.node] for leaf in leaves if not leaf.is_backed),
        max((leaf.value_bytes * lengths[leaf.node] for leaf in leaves), default=0),
    )


def children(data_type: pa.DataType) -> list[pa.DataType]:
    """Return the types of the arrays directly inside an array of this type, as Arrow's metadata counts them."""
    if isinstance(data_type, pa.BaseExtensionType):
        return children(data_type.storage_type)
    if isinstance(data_type, pa.RunEndEncodedType):
        return [data_type.run_end_type, data_type.value_type]
    if isinstance(data_type, pa.MapType):
        return [pa.struct([data_type.key_field, data_type.item_field])]
    return [data_type.field(index).type for index in range(data_type.num_fields)]


def path_bytes(fields: Sequence[pa.Field], above_bytes: int = 0) -> int:
    """Return the bytes that files need for the paths of all leaf fields; a path repeats the names of outer fields."""
    total = 0
    for field in fields:
        own_bytes = above_bytes + len(field.name.encode())
        data_type = _storage(field.type)
        below = [data_type.field(index) for index in range(data_type.num_fields)]
        total += path_bytes(below, own_bytes) if below else own_bytes
    return total


def _arrays(data_type: pa.DataType, *, listed: bool = False) -> Iterator[tuple[pa.DataType, bool]]:
    """Yield the type of each array of a column, and whether the array is inside anything other than structs."""
    yield data_type, listed
    listed = listed or not pa.types.is_struct(_storage(data_type))
    for child in children(data_type):
        yield from _arrays(child, listed=listed)


def _value_bytes(data_type: pa.DataType, *, listed: bool) -> int:
    if not listed:
        return _BYTES_PER_VALUE
    return _BYTES_PER_LISTED_BOOLEAN if pa.types.is_boolean(_storage(data_type)) else _BYTES_PER_LISTED_VALUE


def _is_narrow(stored: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(stored):
        return bool(stored.byte_width == 0)
    if pa.types.is_fixed_size_list(stored):
        return bool(stored.list_size == 0)
    without_fields = pa.types.is_struct(stored) and not stored.num_fields
    return without_fields or pa.types.is_null(stored) or pa.types.is_boolean(stored)


def _storage(data_type: pa.DataType) -> pa.DataType:
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type
