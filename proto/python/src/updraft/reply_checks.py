# SPDX-License-Identifier: Apache-2.0
"""What results have to be before they are sent: a client reads them by their addresses, and has no dictionaries."""

import pyarrow as pa

from updraft.arrow_cost import children
from updraft.errors import UserError


def check_reply_schema(schema: pa.Schema) -> None:
    """Raises UserError for columns that cannot be sent."""
    if any(_has_dictionary(field.type) for field in schema):
        raise UserError("the function returned a dictionary-encoded column, which cannot be sent: decode it first")


def check_reply(batch: pa.RecordBatch) -> None:
    """Raises UserError for a batch that is not valid Arrow: a JVM that read outside of its buffers would end."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UserError(f"the function returned a column that is not valid Arrow: {error}") from error


def _has_dictionary(data_type: pa.DataType) -> bool:
    return pa.types.is_dictionary(data_type) or any(map(_has_dictionary, children(data_type)))
