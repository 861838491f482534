# SPDX-License-Identifier: Apache-2.0
"""Calls of a registered function by Python clients without any part of Updraft."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from databend_udf.client import UDFClient
from pyarrow import flight

from tests.support.pool import LocalPool


def flight_table(pool: LocalPool, name: str, columns: Sequence[pa.Array]) -> pa.Table:
    """Return the table that pyarrow.flight gets for the columns."""
    batch = pa.record_batch(list(columns), [str(number) for number in range(len(columns))])
    with flight.connect(f"grpc://{pool.tcp_address}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(name))
        with writer:
            writer.begin(batch.schema)
            writer.write_batch(batch)
            writer.done_writing()
            return reader.read_all()


def by_pyarrow(pool: LocalPool, name: str, columns: Sequence[pa.Array]) -> list[Any]:
    """Return the values of the first column of that table."""
    return list(flight_table(pool, name, columns).column(0).to_pylist())


def by_databends_client(pool: LocalPool, name: str, columns: Sequence[pa.Array]) -> list[Any]:
    """Return the values that the client of databend-udf gets."""
    host, port = pool.tcp_address.rsplit(":", 1)
    client = UDFClient(host, int(port))
    with contextlib.closing(client.client):
        return list(client.call_function(name, *(column.to_pylist() for column in columns)))
