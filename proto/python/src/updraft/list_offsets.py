# SPDX-License-Identifier: Apache-2.0
"""Repair of lists without rows, which may have bad offsets.

Arrow for Java before 19 sends such lists without offsets, and a hostile client may send any offsets. Arrow's validation
accepts both, but `nbytes`, `to_pandas`, `flatten` and others then read the first offset and crash the process.
"""

import pyarrow as pa


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch, or a repaired copy if a list has no offsets, or has no rows and a first offset other than 0."""
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
