# SPDX-License-Identifier: Apache-2.0
"""Size of Arrow data in bytes, including data for which `nbytes` would crash the process (`nested_arrays`)."""

import pyarrow as pa

from updraft.nested_arrays import lacks_offsets


def data_bytes(data: pa.RecordBatch | pa.Table) -> int:
    """Return the size of the rows in bytes; in a slice, only its own rows count, unless a list lacks offsets."""
    return sum(map(_batch_bytes, data.to_batches() if isinstance(data, pa.Table) else [data]))


def _batch_bytes(batch: pa.RecordBatch) -> int:
    size_bytes: int = batch.get_total_buffer_size() if lacks_offsets(batch) else batch.nbytes
    return size_bytes
