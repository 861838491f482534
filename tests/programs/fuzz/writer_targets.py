# SPDX-License-Identifier: Apache-2.0
"""Fuzz targets for input that a writer reads from its clients."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pyarrow as pa

from tests.programs.fuzz.arrow import changed_batch, pieces_of, random_batch
from tests.programs.fuzz.target import Pieces, Target, mutated, number
from updraft.arrow_decoder import encapsulated_message
from updraft.errors import UpdraftError
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1 import write_pb2 as wire
from updraft_writer.file_factory import choose_encoder
from updraft_writer.reason import Reason, ReasonKind
from updraft_writer.request import WriteRequest, checked_command, with_schema
from updraft_writer.row_groups import unbacked_allowance_bytes
from updraft_writer.shared_values import refuse_shared_views
from updraft_writer.sinks.roots import Roots

_NO_GPU = Reason(ReasonKind.OPTION, "nothing is written")
_ROOT = "/nowhere/tables"
_QUOTA_BYTES = 64 << 20
_STRIPE_BYTES = 1 << 20


def _request(chance: random.Random) -> Pieces:
    """Return a command with options at their limits, half of the time with changed bytes, and a schema's header."""
    command = wire.WriteCommand(
        protocol_version=PROTOCOL_VERSION,
        path=chance.choice((_ROOT + "/a", _ROOT + "/../b", "s3://b/" + "x" * 300, "", "\0", "//", _ROOT + "/" * 9000)),
        delivery=_any(wire.Delivery, chance),
        pace=_any(wire.Pace, chance),
        max_in_flight_bytes=abs(number(chance)),
        footer={"key": "value"},
    )
    if chance.random() < 0.5:
        _parquet(command.parquet, chance)
    else:
        _orc(command.orc, chance)
    encoded = command.SerializeToString()
    schema = pieces_of(random_batch(chance))[0]
    return [mutated(encoded, chance) if chance.random() < 0.5 else encoded, schema]


def _any(enumeration: Any, chance: random.Random) -> Any:
    return chance.choice(enumeration.values())


def _parquet(options: wire.ParquetOptions, chance: random.Random) -> None:
    options.compression.codec = _any(wire.Codec, chance)
    options.compression.level = number(chance, 32)
    options.page_bytes = abs(number(chance))
    options.row_group_rows = abs(number(chance))
    options.time_zone = chance.choice(("", "UTC", "Europe/Berlin", "../../etc/passwd", "x" * 300))
    options.timestamps = _any(wire.TimestampType, chance)
    options.rebase = _any(wire.Rebase, chance)
    for _ in range(chance.randrange(3)):
        options.bloom_filters.add(
            column=chance.choice(("a0", "a.b0", "")),
            distinct_values=abs(number(chance)),
            false_positive_probability=chance.choice((0, 1, -1, 0.01, 1e-300, float("nan"), float("inf"))),
        )


def _orc(options: wire.OrcOptions, chance: random.Random) -> None:
    options.compression.codec = _any(wire.Codec, chance)
    options.stripe_bytes = abs(number(chance))
    options.row_index_stride = abs(number(chance))
    options.bloom_filter_false_positive_probability = chance.choice((0, 0.01, -1, 2, float("nan")))
    if chance.random() < 0.5:
        options.bloom_filter_columns.append(chance.choice(("a0", "none")))


def _read_request(pieces: Pieces) -> None:
    """Read everything before the first batch: the command, the schema, the path and the encoder."""
    with contextlib.suppress(UpdraftError):
        command = checked_command(pieces[0])
        request = with_schema(command, memoryview(pieces[1]), share="fuzz")
        assert request.log_context
        assert request.in_flight_limit_bytes is None or request.in_flight_limit_bytes >= 0
        with contextlib.suppress(UpdraftError):
            Roots((_ROOT,)).storage(command.path)
        choose_encoder(command, request.decoder.schema, _NO_GPU, max_stripe_bytes=_STRIPE_BYTES)


def _read_batch(pieces: Pieces) -> None:
    """Decode a batch as if it had credit, and encode it as a file with default options."""
    command = wire.WriteCommand(
        protocol_version=PROTOCOL_VERSION, delivery=wire.Delivery.DELIVERY_RETURN, parquet=wire.ParquetOptions()
    )
    with contextlib.suppress(UpdraftError):
        request = with_schema(command, memoryview(pieces[0]), share="fuzz")
        # The writer chooses the encoder before any batch arrives, and thereby refuses types that no file can contain.
        encoder = choose_encoder(command, request.decoder.schema, _NO_GPU, max_stripe_bytes=0)
        batch = _decoded(request, pieces)
        if batch is None:
            return
        encoder.write(pa.Table.from_batches([batch]))
        encoder.close()


def _decoded(request: WriteRequest, pieces: Pieces) -> pa.RecordBatch | None:
    message = encapsulated_message(memoryview(pieces[1]), memoryview(pieces[2]))
    claims = request.decoder.claims(message, sequence=1)
    if claims.unbacked_bytes > unbacked_allowance_bytes(_QUOTA_BYTES):
        return None
    batch = request.decoder.decode_batch(message, sequence=1)
    if request.has_views:
        refuse_shared_views(batch, body_bytes=len(pieces[2]))
    return batch


TARGETS = (
    Target("write requests", _request, _read_request),
    Target("written batches", changed_batch, _read_batch),
)
