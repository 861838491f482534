# SPDX-License-Identifier: Apache-2.0
"""A client of the writer service, for producers other than Spark.

    with WriterClient("127.0.0.1:8816") as client:
        with client.create("/data/part.parquet", schema) as file:
            file.write(table)
        print(file.receipt.file_bytes)

The file is published when the block ends well; an exception in it gives the file up. See proto/README.md, "Writing a
file", for what travels.
"""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Self

import grpc
import pyarrow as pa

from updraft.client.remote_file import RemoteFile
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1.exchange_pb2 import TaskIdentity
from updraft.v1.write_pb2 import Delivery, OrcOptions, Pace, ParquetOptions, WriteCommand

_DO_EXCHANGE = "/arrow.flight.protocol.FlightService/DoExchange"
_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A file has no deadline by default, so pings have to find out that the writer's machine is gone.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]


class WriterClient:
    """A connection to a writer; one client may have many files open, each used by one thread at a time."""

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        tenant: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """`timeout_seconds` bounds the life of one file, from its opening to its receipt; None sets no bound."""
        self._channel = (
            grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
            if credentials is None
            else grpc.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)
        )
        headers = {"authorization": f"Bearer {token}" if token else "", "x-updraft-tenant": tenant}
        self._headers = tuple((name, value) for name, value in headers.items() if value)
        self._timeout_seconds = timeout_seconds

    def create(
        self,
        path: str,
        schema: pa.Schema,
        options: ParquetOptions | OrcOptions | None = None,
        *,
        into: BinaryIO | None = None,
        pace: Pace = Pace.PACE_ASYNCHRONOUS,
        max_in_flight_bytes: int = 0,
        hold_gpu: bool | None = None,
        footer: Mapping[str, str] | None = None,
        task: TaskIdentity | None = None,
        max_batch_bytes: int = 8 * 1024 * 1024,
    ) -> RemoteFile:
        """Open a file of Parquet (the default) or ORC.

        With `into` the encoded bytes come back and are written there, and `path` is a name for logs alone. Batches
        larger than `max_batch_bytes` are cut. Errors show in the first `write` or in `finish`.
        """
        command = WriteCommand(
            protocol_version=PROTOCOL_VERSION,
            task=task,
            path=path,
            delivery=Delivery.DELIVERY_DIRECT if into is None else Delivery.DELIVERY_RETURN,
            pace=pace,
            max_in_flight_bytes=max_in_flight_bytes,
            footer=footer or {},
            **{"orc" if isinstance(options, OrcOptions) else "parquet": options or ParquetOptions()},  # type: ignore[arg-type]
        )
        if hold_gpu is not None:
            command.hold_gpu = hold_gpu
        call = self._channel.stream_stream(_DO_EXCHANGE)

        def start(requests: Iterator[bytes]) -> Any:
            return call(requests, metadata=self._headers, timeout=self._timeout_seconds)

        return RemoteFile(start, command, schema, into=into, max_batch_bytes=max_batch_bytes)

    def close(self) -> None:
        """End the connection; files that are open are given up."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
