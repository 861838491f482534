# SPDX-License-Identifier: Apache-2.0
"""x + 1 as functions of arrow-udf's server."""

from arrow_udf import UdfServer, udf


@udf(input_types="BIGINT", result_type="BIGINT")
def rows(x: int) -> int:
    """Add one to a value."""
    return x + 1


@udf(input_types="BIGINT", result_type="BIGINT", batch=True)
def batch(xs: list[int]) -> list[int]:
    """Add one to a list of values, which arrow-udf calls a batch."""
    return [x + 1 for x in xs]


server = UdfServer(location="127.0.0.1:0")
server.add_function(rows)
server.add_function(batch)
print(server.port, flush=True)
server.serve()
