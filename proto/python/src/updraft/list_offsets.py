# SPDX-License-Identifier: Apache-2.0
"""Repairs lists without offsets, which Arrow for Java before 19 sends for lists without rows.

Arrow's validation accepts them, but `nbytes`, `to_pandas` and others then read the missing first offset and crash the
process.
"""

import pyarrow as pa


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch itself, or a repaired copy if a list lacks its offsets."""
    return pa.concat_batches([batch]) if lacks_offsets(batch) else batch


def lacks_offsets(batch: pa.RecordBatch) -> bool:
    """Whether a list in a column, at any depth, lacks its offsets, as far as Python can look."""
    try:
        return any(map(_array_lacks_offsets, batch.columns))
    except KeyError:
        # An interval of months, for instance: pyarrow has no class for such an array, and says so by this error to
        # whoever uses the column. A copy is right in any case.
        return True


def _array_lacks_offsets(array: pa.Array) -> bool:
    match array:
        # A map is a list, too.
        case pa.ListArray() | pa.LargeListArray():
            return not array.buffers()[1] or _array_lacks_offsets(array.values)
        case pa.FixedSizeListArray():
            return _array_lacks_offsets(array.values)
        case pa.StructArray():
            return any(_array_lacks_offsets(array.field(index)) for index in range(array.type.num_fields))
        case pa.ExtensionArray():
            return _array_lacks_offsets(array.storage)
        case _:
            return False
