# SPDX-License-Identifier: Apache-2.0
"""x + 1 in a bare server of pyarrow.flight: no queue, no process for the function, no checks."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    def do_exchange(self, _context: Any, _descriptor: Any, reader: Any, writer: Any) -> None:
        """Add one to the first column."""
        schema = pa.schema([pa.field("result", pa.int64())])
        writer.begin(schema)
        for chunk in reader:
            writer.write_batch(pa.record_batch([pc.add(chunk.data.column(0), 1)], schema=schema))


server = _Server("grpc://127.0.0.1:0")
print(server.port, flush=True)
server.serve()
