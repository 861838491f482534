# SPDX-License-Identifier: Apache-2.0
"""Client of the writer service, for producers other than Spark.

    with WriterClient("127.0.0.1:8816") as client:
        with client.create("/data/part.parquet", schema) as file:
            file.write(table)
        print(file.receipt.file_bytes)

For a Parquet file, `file.receipt.columns` holds the statistics of the columns (`ColumnStatistics`).

The writer publishes the file if the block ends without an exception; an exception aborts the file. proto/README.md,
"Writing a file", specifies the messages.

Every call that sends data can raise an `UpdraftError` (`updraft.errors`):

| error | cause | retry |
| --- | --- | --- |
| `UnauthenticatedError` | the token is missing or wrong | no |
| `VersionMismatchError` | the writer does not speak this version of the protocol | no |
| `WriteRefusedError` | the path is outside the writer's roots, or they do not allow the delivery | no |
| `WriteOptionError` | the writer does not have the format, codec, option or type | no |
| `EncodeError` | the data cannot be encoded as asked | no |
| `LimitError` | a row or the schema is larger than the writer allows; the message names its setting | no |
| `QuotaError` | the writer is full, or a batch waited too long for its quota | later |
| `PoolUnavailableError` | the writer is unreachable or draining | later, or at another writer |
| `DeadlineError` | `timeout_seconds` passed, or the writer gave up on a silent client | perhaps |
| `SinkError` | the storage failed; the message says what is at the path | perhaps |
| `ProtocolError` | one side broke the protocol, or the call ended early | no |
| `InternalError` | a defect in the writer, or in this process, such as an error of `into` (its cause) | no |
"""

from collections.abc import Mapping
from functools import partial
from typing import BinaryIO, Self

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
    # A file has no deadline by default, so pings have to detect that the writer's machine is gone.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]


class WriterClient:
    """Connection to a writer.

    One client may have many files open. Use each file from one thread at a time. The first file opens the connection.
    As a context manager, the client closes itself.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        tenant: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Prepare the connection. This sends nothing yet, so it raises no UpdraftError.

        Args:
            address: Address of the writer, as gRPC writes it: `host:port`, or `unix:///path` for a Unix socket.
            token: Bearer token; empty for a writer without tokens.
            tenant: Tenant used for fair scheduling of the writer's quota; if empty, the application of each `task`.
            credentials: TLS credentials, such as `grpc.ssl_channel_credentials(authorities)`; None for plain text.
            timeout_seconds: Deadline of each file, in seconds from its opening to its receipt; None sets no deadline.
        """
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
        """Open a Parquet or ORC file, without waiting for the writer's answer.

        An error on opening, such as a refused path, is therefore raised by the first `write` or by `finish`.

        Args:
            path: Absolute path or URI of the final file, below a root of the writer. With `into`, a name for logs.
            schema: Arrow schema of all rows of the file.
            options: `OrcOptions` for ORC, otherwise `ParquetOptions`; None is Parquet with the writer's defaults.
            into: Binary file that receives the encoded bytes (`return` delivery). With None, the writer stores the file
                at `path` (`direct` delivery).
            pace: Whether the next batch may be sent while earlier ones are encoded and stored (asynchronous), or only
                after they are stored (synchronous: each batch then becomes a separate row group).
            max_in_flight_bytes: Maximum bytes of this file that the writer holds at once; with 0, only the quota limits
                them.
            hold_gpu: Whether the file keeps its place on the writer's GPU between its batches; None means yes if
                `pace` is asynchronous, else no. It has no effect without a GPU encoder.
            footer: Key-value pairs to store in the file's footer.
            task: Task that the writer's logs and metrics name for this file, such as a Spark task.
            max_batch_bytes: Size above which batches are cut before they are sent. A single row may be larger: it is
                sent in parts that fit into the writer's messages, up to the writer's `--max-batch-bytes`.

        Returns:
            The open file, to be used in a `with` block or ended with `finish` or `abort`.
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
        start = partial(call, metadata=self._headers, timeout=self._timeout_seconds)
        return RemoteFile(start, command, schema, into=into, max_batch_bytes=max_batch_bytes)

    def close(self) -> None:
        """Close the connection. The writer aborts open files and does not publish them."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
