# SPDX-License-Identifier: Apache-2.0
"""Built-in functions, which every pool has."""

from typing import Annotated

import pyarrow as pa

from updraft.functions import function


@function(result=lambda schema: schema)
def echo(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return each batch unchanged: proves the path to a worker and back."""
    return batch


@function(name="builtin_echo")
def databend_echo(text: str | None) -> str | None:
    """Return the text: Databend and its Python client check with it whether a server answers."""
    return text


@function(name="builtin_healthy")
def databend_health() -> Annotated[int | None, pa.int32()]:
    """Return 1, for Databend's Python client."""
    return 1


BUILTIN = (echo, databend_echo, databend_health)
