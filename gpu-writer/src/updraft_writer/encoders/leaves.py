# SPDX-License-Identifier: Apache-2.0
"""The leaf columns under nested Arrow columns, in the order in which Parquet has them."""

from collections.abc import Iterator

import pyarrow as pa


def leaf_types(data_type: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the leaves under a column's type."""
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


def leaf_arrays(array: pa.Array) -> Iterator[pa.Array]:
    """The values of the leaves under a column; those below a null are left out or null."""
    if isinstance(array, pa.ExtensionArray):
        yield from leaf_arrays(array.storage)
    elif pa.types.is_map(array.type):
        # A sliced map shares its entries with the whole.
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
