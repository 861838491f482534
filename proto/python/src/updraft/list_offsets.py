# SPDX-License-Identifier: Apache-2.0
"""Repairs lists without rows: Arrow for Java before 19 sends them without offsets, and a hostile client with any.

Arrow's validation accepts both, but `nbytes`, `to_pandas`, `flatten` and others then read the first offset and crash
the process.
"""

import pyarrow as pa


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch itself, or a repaired copy if a list lacks its offsets, or has odd ones and no rows."""
    return pa.concat_batches([batch]) if lacks_offsets(batch) else batch


def lacks_offsets(batch: pa.RecordBatch) -> bool:
    """Whether a list in a column, at any depth, lacks its offsets or only its rows, as far as Python can look."""
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
