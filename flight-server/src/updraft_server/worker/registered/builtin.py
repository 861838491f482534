# SPDX-License-Identifier: Apache-2.0
"""The functions that every pool has."""

from typing import Annotated

import pyarrow as pa

from updraft.functions import function


@function(result=lambda schema: schema)
def echo(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns each batch unchanged: proves the path to a worker and back."""
    return batch


@function(name="builtin_echo")
def databend_echo(text: str | None) -> str | None:
    """Returns the text: Databend and its Python client ask so whether a server answers."""
    return text


@function(name="builtin_healthy")
def databend_health() -> Annotated[int | None, pa.int32()]:
    """Returns 1, for Databend's Python client."""
    return 1


BUILTIN = (echo, databend_echo, databend_health)
