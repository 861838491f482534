# SPDX-License-Identifier: Apache-2.0
"""First message of an exchange: what to write, where and for whom. This module makes all checks that need no data."""

from collections.abc import Sequence
from dataclasses import dataclass

from updraft.arrow_decoder import ArrowDecoder, encapsulated_message
from updraft.arrow_layout import Text
from updraft.errors import LimitError, ProtocolError
from updraft.flight_data import DescriptorKind, FlightFields, parse_descriptor
from updraft.service.exchange import check_version, parse_message, task_context
from updraft.service.flight_service import MAX_ACTION_BODY_BYTES
from updraft.service.telemetry import shortened
from updraft.v1.write_pb2 import Delivery, Pace, WriteCommand
from updraft_writer.shared_values import has_views, refuse_shared_types

SERVICE = "writer"

_MAX_BATCH_ROWS = 1 << 26
# The log shortens longer paths. Paths of files in real tables are shorter than this.
_MAX_PATH_CHARACTERS = 2048

# Limit on the size of a command, because the command of an open file stays in memory, outside the quota. The limit
# leaves room for a footer with the widest schema that a writer accepts. The limit equals that of an action's body,
# because a client sends the same command to the action `updraft.check_write` before it opens files.
_MAX_COMMAND_BYTES = MAX_ACTION_BODY_BYTES
# Limits on the number of footer keys and of bloom filters. While a file is open, each key or filter takes many times
# its own size in memory. Spark writes three keys, and a column has one filter.
_MAX_FOOTER_KEYS = 1024
_MAX_BLOOM_FILTERS = 32_768


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Checked command, the decoder for its batches, and the tenant whose share of the quota the batches take."""

    command: WriteCommand
    decoder: ArrowDecoder
    share: str
    roots: Sequence[str] = ()
    """Roots below which the client may write. If empty, the client may write below all of the writer's roots."""
    has_views: bool = False
    """Whether rows may share the bytes of strings."""

    @property
    def is_synchronous(self) -> bool:
        """Whether each batch is stored before the writer gives credit for the next batch."""
        return bool(self.command.pace == Pace.PACE_SYNCHRONOUS)

    @property
    def in_flight_limit_bytes(self) -> int | None:
        """Limit on the bytes that this file may hold when a batch receives credit; None if only the quota applies."""
        if self.is_synchronous:
            return 0
        return int(self.command.max_in_flight_bytes) or None

    @property
    def holds_gpu(self) -> bool:
        """Whether the file keeps its place on the GPU between batches. By default, asynchronous files keep it."""
        if self.command.HasField("hold_gpu"):
            return bool(self.command.hold_gpu)
        return not self.is_synchronous

    @property
    def log_context(self) -> dict[str, str]:
        """Path and task, which every log line of the exchange contains."""
        return {"path": shortened(self.command.path, _MAX_PATH_CHARACTERS), **task_context(self.command.task)}


def parse_command(fields: FlightFields) -> WriteCommand:
    """Return the command of the first message; raises the errors of `checked_command`."""
    descriptor = parse_descriptor(fields.descriptor)
    if descriptor.kind is not DescriptorKind.CMD:
        raise ProtocolError("a writer needs a flight descriptor of type CMD with a WriteCommand")
    return checked_command(descriptor.command)


def checked_command(encoded: bytes | memoryview) -> WriteCommand:
    """Parse and check a command; raises ProtocolError, LimitError and VersionMismatchError."""
    if len(encoded) > _MAX_COMMAND_BYTES:
        raise LimitError(
            f"the command has {len(encoded)} bytes, the limit of this writer is {_MAX_COMMAND_BYTES}: "
            "shorten its footer"
        )
    command = parse_message(WriteCommand, encoded, "these bytes are not a WriteCommand")
    check_version(command.protocol_version, SERVICE)
    if len(command.footer) > _MAX_FOOTER_KEYS:
        raise LimitError(f"the footer has {len(command.footer)} keys, the limit is {_MAX_FOOTER_KEYS}")
    filters = len(command.parquet.bloom_filters) + len(command.orc.bloom_filter_columns)
    if filters > _MAX_BLOOM_FILTERS:
        raise LimitError(f"the command asks for {filters} bloom filters, the limit is {_MAX_BLOOM_FILTERS}")
    if command.delivery not in (Delivery.DELIVERY_DIRECT, Delivery.DELIVERY_RETURN):
        raise ProtocolError("the command names no delivery: direct or return")
    if command.pace not in Pace.values():
        raise ProtocolError(f"unknown pace {command.pace}")
    return command


def with_schema(command: WriteCommand, header: memoryview, *, share: str, roots: Sequence[str] = ()) -> WriteRequest:
    """Complete a request with the schema's Arrow header; raises ProtocolError, LimitError and WriteOptionError."""
    schema = encapsulated_message(header, memoryview(b""))
    decoder = ArrowDecoder.announced_by(schema, "the first message", max_batch_rows=_MAX_BATCH_ROWS, text=Text.BYTES)
    refuse_shared_types(decoder.schema)
    return WriteRequest(command, decoder, share, roots, has_views(decoder.schema))
