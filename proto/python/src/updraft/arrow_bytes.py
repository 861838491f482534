# SPDX-License-Identifier: Apache-2.0
"""How many bytes Arrow data takes, also where Arrow's own `nbytes` must not be asked.

An empty list may come without offsets, as older Arrow for Java sends it; Arrow's validation takes it, and `nbytes`
reads the offset that is not there and ends the process.
"""

import pyarrow as pa


def data_bytes(data: pa.RecordBatch | pa.Table) -> int:
    """Bytes of the rows; a slice of nested columns counts as the whole that it is a slice of."""
    columns = zip(data.schema.types, data.columns, strict=True)
    return sum(
        column.get_total_buffer_size() if pa.types.is_nested(data_type) else column.nbytes
        for data_type, column in columns
    )
