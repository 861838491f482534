# SPDX-License-Identifier: Apache-2.0
"""Lists that come without offsets, as Arrow for Java before 19 sends those that have no rows.

Arrow's validation takes them; `nbytes`, `to_pandas` and others then read the first offset, which is not there, and end
the process.
"""

import pyarrow as pa


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch; a copy of it where a list lacks its offsets."""
    return pa.concat_batches([batch]) if lacks_offsets(batch) else batch


def lacks_offsets(batch: pa.RecordBatch) -> bool:
    """Whether a list in a column, at any depth, has none."""
    return any(map(_array_lacks_offsets, batch.columns))


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
