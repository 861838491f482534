# SPDX-License-Identifier: Apache-2.0
"""What results have to be before they are sent: a client reads them by their addresses, and has no dictionaries.

A declaration asks for the second too: the errors of a call load protobuf, which authors need not wait for.
"""

import pyarrow as pa

from updraft.arrow_cost import children
from updraft.arrow_layout import ArrowLayout


def check_reply_schema(schema: pa.Schema) -> None:
    """Raises UserError for columns that cannot be sent."""
    from updraft.errors import UserError

    if any(has_dictionary(field.type) for field in schema):
        raise UserError("the function returned a dictionary-encoded column, which cannot be sent: decode it first")


def check_reply(batch: pa.RecordBatch, layout: ArrowLayout) -> None:
    """Raise UserError for a batch that is not valid Arrow: a JVM that read outside of its buffers would end."""
    from updraft.errors import UserError

    try:
        layout.check(batch)
    except pa.ArrowInvalid as error:
        raise UserError(f"the function returned a column that is not valid Arrow: {error}") from error


def has_dictionary(data_type: pa.DataType) -> bool:
    """Whether values of the type are dictionary-encoded, or some inside of them."""
    return pa.types.is_dictionary(data_type) or any(map(has_dictionary, children(data_type)))
