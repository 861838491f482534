# SPDX-License-Identifier: Apache-2.0
"""Checks of results before they are sent: their buffers must be valid, and no column may be dictionary-encoded.

Function definitions use `has_dictionary` too. The functions here import `updraft.errors` late, because that module
loads protobuf and would slow an author's import down.
"""

import pyarrow as pa

from updraft.arrow_cost import children
from updraft.arrow_layout import ArrowLayout


def check_reply_schema(schema: pa.Schema) -> None:
    """Raise UserError for columns that cannot be sent."""
    from updraft.errors import UserError

    if any(has_dictionary(field.type) for field in schema):
        raise UserError("the function returned a dictionary-encoded column, which cannot be sent: decode it first")


def check_reply(batch: pa.RecordBatch, layout: ArrowLayout) -> None:
    """Raise UserError for a batch that is not valid Arrow, because reading outside of its buffers would crash a JVM."""
    from updraft.errors import UserError

    try:
        layout.check(batch)
    except pa.ArrowInvalid as error:
        raise UserError(f"the function returned a column that is not valid Arrow: {error}") from error


def has_dictionary(data_type: pa.DataType) -> bool:
    """Return whether the type, or a type inside it, is dictionary-encoded."""
    return pa.types.is_dictionary(data_type) or any(map(has_dictionary, children(data_type)))
