# SPDX-License-Identifier: Apache-2.0
"""Calls functions of a pool with pyarrow.flight alone: `python call_words.py grpc://localhost:8815`."""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import flight


def call(client: flight.FlightClient, path: Sequence[str], batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return the results of a function; `path` is its name, or its name and version."""
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(*path))
    with writer:
        writer.begin(batches[0].schema)

        def send() -> None:
            for batch in batches:
                writer.write_batch(batch)
            writer.done_writing()

        # A thread of its own: whoever writes all before reading anything waits for a pool that waits for its reader.
        sending = threading.Thread(target=send)
        sending.start()
        results = reader.read_all()
        sending.join()
    return results


def signature(info: Any) -> str:
    """Return a function's name, arguments and results, of what `list_flights` and `get_flight_info` answer."""
    name = "@".join(part.decode() for part in info.descriptor.path)
    if info.total_records < 0:
        return f"{name}(any columns)"
    fields = [f"{field.name} {field.type}" for field in info.schema]
    arguments, results = fields[: info.total_records], fields[info.total_records :]
    return f"{name}({', '.join(arguments)}) -> {', '.join(results)}"


def main() -> None:
    """Print what the pool has, and call two of its functions."""
    with flight.connect(sys.argv[1]) as client:
        for info in client.list_flights():
            print(signature(info))
        names = pa.record_batch({"name": ["ada lovelace", None, "Grace Brewster Hopper"]})
        print(call(client, ["initials", "1"], [names]).column(0).to_pylist())
        texts = pa.record_batch({"text": ["a rose is a rose", None, "so it goes"]})
        for row in call(client, ["word_counts"], [texts]).to_pylist():
            print(row)
        try:
            call(client, ["initials"], [pa.record_batch({"name": [1, 2]})])
        except pa.ArrowInvalid as error:
            # Behind what the pool says Arrow repeats it in gRPC's words.
            print(f"refused: {str(error).partition('. gRPC')[0]}")


if __name__ == "__main__":
    main()
