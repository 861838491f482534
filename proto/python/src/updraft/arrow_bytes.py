# SPDX-License-Identifier: Apache-2.0
"""How many bytes Arrow data takes, also where `nbytes` must not be asked (`list_offsets`)."""

import pyarrow as pa

from updraft.list_offsets import lacks_offsets


def data_bytes(data: pa.RecordBatch | pa.Table) -> int:
    """Bytes of the rows, whatever they are a slice of; of batches that lack offsets, of all that their buffers hold."""
    return sum(map(_batch_bytes, data.to_batches() if isinstance(data, pa.Table) else [data]))


def _batch_bytes(batch: pa.RecordBatch) -> int:
    size_bytes: int = batch.get_total_buffer_size() if lacks_offsets(batch) else batch.nbytes
    return size_bytes
