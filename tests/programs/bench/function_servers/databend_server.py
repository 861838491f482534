# SPDX-License-Identifier: Apache-2.0
"""x + 1 as functions of databend-udf's server, with and without its threads for I/O."""

from databend_udf import UDFServer, udf


@udf(input_types=["BIGINT"], result_type="BIGINT", io_threads=1)
def rows(x: int) -> int:
    """Add one to a value."""
    return x + 1


@udf(input_types=["BIGINT"], result_type="BIGINT", batch_mode=True)
def batch(xs: list[int]) -> list[int]:
    """Add one to a list of values, which databend-udf calls a batch."""
    return [x + 1 for x in xs]


server = UDFServer("127.0.0.1:0")
server.add_function(rows)
server.add_function(batch)
print(server.port, flush=True)
server.serve()
