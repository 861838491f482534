# SPDX-License-Identifier: Apache-2.0
"""The function that every pool has."""

import pyarrow as pa

from updraft.functions import function


@function(result=lambda schema: schema)
def echo(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns each batch unchanged: proves the path to a worker and back."""
    return batch
