# SPDX-License-Identifier: Apache-2.0
"""Attempts of a pool's clients to hold resources: by silence, unread replies, many exchanges, and artifacts."""

from __future__ import annotations

import contextlib
import hashlib
import time
from typing import Any

import grpc
import pyarrow as pa
from grpc_health.v1.health_pb2 import HealthCheckRequest
from hostile_archives import of_directories
from pyspark.sql.types import StringType
from session_commands import scalar_arrow

from tests.attacks.outsiders import HANG_SECONDS, ClientAttempts, Conversation, Outsider
from tests.support.flight import FlightData, first_message, ipc_parts, numbered
from updraft.v1.exchange_pb2 import (
    Artifact,
    ArtifactPart,
    DeferredPayload,
    ExchangeCommand,
    PayloadPart,
    ReplyMetadata,
    RequestMetadata,
)

MIB = 1 << 20
QUEUE_BYTES, STORE_BYTES = 64 * MIB, 256 * MIB
SETTINGS = [
    "--queue-limit=32",
    f"--artifact-store-bytes={STORE_BYTES}",
    "--client-silence-seconds=4",
]
CONSTANTS = {
    "updraft_server.front.queue.admission.QUEUE_BYTES": QUEUE_BYTES,
    "updraft_server.front.artifacts.dialogue.ARTIFACT_TIMEOUT_SECONDS": 2.0,
    "updraft.service.exchange.FIRST_MESSAGE_TIMEOUT_SECONDS": 2.0,
    "updraft.service.listeners.HANDSHAKE_TIMEOUT_SECONDS": 2.0,
}
"""Constants of the pool, with short timeouts so that the pool notices silent clients soon."""

ATTEMPTS = ClientAttempts()

ROW = pa.record_batch({"_0": pa.array([1], pa.int64())})
SCHEMA, BATCH = ipc_parts(ROW.schema, [ROW])


def _says_little(column: Any) -> Any:
    import pyarrow as pa

    return pa.array(["little"] * len(column))


def _says_a_lot(column: Any) -> Any:
    import pyarrow as pa

    return pa.array(["a lot of it " * (1 << 20)] * len(column))


def command(
    *artifacts: Artifact, application: str = "app-of-an-outsider", function: Any = _says_little
) -> ExchangeCommand:
    """Return an honest command, which the attempt can change."""
    made = scalar_arrow(function, StringType(), artifacts=artifacts)
    made.task.owner.application_id = application
    return made


def opened(outsider: Outsider, made: ExchangeCommand, schema: bytes = SCHEMA[0]) -> Conversation:
    """Open an exchange with a complete first message."""
    return outsider.exchange(first_message(made, schema))


def admitted(conversation: Conversation) -> Conversation:
    """Return the exchange when it has its worker."""
    while ReplyMetadata.FromString(conversation.hear().app_metadata).WhichOneof("event") != "admitted":
        pass
    return conversation


def broadcast(data: bytes, **changes: Any) -> Artifact:
    """Return the announcement of an artifact that contains these bytes."""
    values = {"sha256": hashlib.sha256(data).digest(), "size_bytes": len(data), "broadcast_id": 7, **changes}
    return Artifact(**values)


def part(of: Artifact, data: bytes, offset: int = 0) -> Any:
    """Return a message with some bytes of an artifact."""
    metadata = RequestMetadata(artifact=ArtifactPart(sha256=of.sha256, offset=offset))
    return FlightData(app_metadata=metadata.SerializeToString(), data_body=data)


@ATTEMPTS("INVALID_ARGUMENT")
def opens_exchanges_and_says_nothing(outsider: Outsider) -> list[str]:
    silent = [outsider.exchange() for _ in range(50)]
    return [exchange.end() for exchange in silent]


@ATTEMPTS("INVALID_ARGUMENT")
def says_what_to_run_and_never_with_what(outsider: Outsider) -> list[str]:
    return [opened(outsider, command(), b"").end()]


@ATTEMPTS("DEADLINE_EXCEEDED")
def gets_a_worker_and_sends_it_nothing(outsider: Outsider) -> list[str]:
    return [opened(outsider, command()).end()]


@ATTEMPTS("DEADLINE_EXCEEDED")
def sends_a_batch_and_then_nothing(outsider: Outsider) -> list[str]:
    return [admitted(opened(outsider, command())).say(numbered(*BATCH, 1)).end()]


@ATTEMPTS("DEADLINE_EXCEEDED")
def never_reads_its_replies(outsider: Outsider) -> list[str]:
    exchange = admitted(opened(outsider, command(function=_says_a_lot)))
    exchange.say(*(numbered(*BATCH, number) for number in range(1, 10)))
    # Wait longer than --client-silence-seconds. The test sleeps, because only a client that reads notices the end of a
    # call.
    time.sleep(6)
    return [exchange.end()]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_half_an_artifact_and_then_nothing(outsider: Outsider) -> list[str]:
    half = broadcast(bytes(2 * MIB))
    return [opened(outsider, command(half)).say(part(half, bytes(MIB))).end()]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_an_artifact_byte_after_byte(outsider: Outsider) -> list[str]:
    slow = broadcast(bytes(MIB))
    exchange = opened(outsider, command(slow))
    for offset in range(30):
        exchange.say(part(slow, b"\0", offset))
        # Send slowly, because slowness is the attack.
        time.sleep(0.1)
    return [exchange.end()]


@ATTEMPTS("INVALID_ARGUMENT")
def announces_artifacts_of_exabytes(outsider: Outsider) -> list[str]:
    sizes = (STORE_BYTES + 1, 1 << 40, (1 << 63) - 1, -1, -(1 << 63))
    return [opened(outsider, command(broadcast(b"", size_bytes=size))).end() for size in sizes]


@ATTEMPTS("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
def announces_more_artifacts_than_there_is_room_and_sends_none(outsider: Outsider) -> list[str]:
    all_of_it = [broadcast(str(number).encode(), size_bytes=STORE_BYTES) for number in range(20)]
    exchanges = [
        opened(outsider, command(artifact, application=f"app-{number}")) for number, artifact in enumerate(all_of_it)
    ]
    return [exchange.end() for exchange in exchanges]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_other_bytes_than_it_announced(outsider: Outsider) -> list[str]:
    announced = broadcast(bytes(1000))
    pieces = {
        "another": [part(announced, b"x" * 1000)],
        "more": [part(announced, bytes(1001))],
        "a gap": [part(announced, bytes(10)), part(announced, bytes(10), 20)],
        "the same again": [part(announced, bytes(10)), part(announced, bytes(10))],
        "before the beginning": [part(announced, bytes(10), -1)],
        "of nobody": [part(broadcast(b"not announced"), b"not announced")],
        "less": [part(announced, bytes(999)), numbered(*BATCH, 1)],
    }
    return [opened(outsider, command(announced)).say(*sent).end() for sent in pieces.values()]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_a_small_archive_of_more_directories_than_there_is_room_for(outsider: Outsider) -> list[str]:
    # The pool charges at least 4 KiB for a directory, on any disk.
    data = of_directories(STORE_BYTES // 4096 // 40 + 1, depth=40)
    archive = broadcast(data)
    archive.directory_name = "small"
    exchange = opened(outsider, command(archive))
    exchange.say(part(archive, data))
    return [exchange.end()]


@ATTEMPTS("INVALID_ARGUMENT")
def names_a_digest_of_the_victim(outsider: Outsider) -> list[str]:
    exchange = opened(outsider, command(broadcast(outsider.victims_bytes)))
    wanted = ReplyMetadata.FromString(exchange.hear().app_metadata)
    # Knowledge of a digest gives no access to the bytes, so the pool asks the client for the bytes.
    asked = list(wanted.artifacts_wanted.sha256) == [hashlib.sha256(outsider.victims_bytes).digest()]
    return [exchange.end() if asked else "it was given the victim's bytes"]


@ATTEMPTS("INVALID_ARGUMENT")
def names_artifacts_as_paths(outsider: Outsider) -> list[str]:
    names = ("..", ".", "../../tokens", "/etc/passwd", "a/b", "a\0b", "x" * 256)
    roles = ("file_name", "directory_name")
    made: Any = Artifact
    listed = [made(sha256=bytes(32), size_bytes=0, **{role: name}) for name in names for role in roles]
    return [opened(outsider, command(artifact)).end() for artifact in listed]


@ATTEMPTS("INVALID_ARGUMENT")
def lists_artifacts_without_number(outsider: Outsider) -> list[str]:
    made = command()
    made.session.artifacts.extend(broadcast(b"", broadcast_id=number) for number in range(5000))
    return [opened(outsider, made).end()]


@ATTEMPTS("RESOURCE_EXHAUSTED", "CANCELLED")
def asks_hundreds_of_times_and_vanishes(outsider: Outsider) -> list[str]:
    exchanges = [opened(outsider, command(application=f"app-{number % 7}")) for number in range(300)]
    # More exchanges than the queue can hold. When the last exchange has its answer, the pool has handled all of them.
    with contextlib.suppress(grpc.RpcError):
        exchanges[-1].hear()
    return [exchange.leave() for exchange in exchanges]


@ATTEMPTS("CANCELLED", "RESOURCE_EXHAUSTED")
def announces_functions_that_fill_the_queue_and_sends_them_byte_after_byte(outsider: Outsider) -> list[str]:
    exchanges = []
    for number in range(8):
        made = command(application=f"app-{number}")
        made.ClearField("payload")
        made.deferred_payload.CopyFrom(DeferredPayload(size_bytes=30 * MIB))
        exchanges.append(opened(outsider, made))
    for offset in range(30):
        metadata = RequestMetadata(payload=PayloadPart(offset=offset)).SerializeToString()
        for exchange in exchanges:
            exchange.say(FlightData(app_metadata=metadata, data_body=b"x"))
        if offset == 10:
            outsider.is_another_served()
        # Send slowly, because slowness is the attack.
        time.sleep(0.1)
    return [exchange.leave() for exchange in exchanges]


@ATTEMPTS("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
def asks_without_a_token_for_the_health_of_names_of_megabytes(outsider: Outsider) -> list[str]:
    question = HealthCheckRequest(service="x" * (60 * MIB)).SerializeToString()
    watches = [_unproven(outsider, "/grpc.health.v1.Health/Watch", question) for _ in range(24)]
    return [watch.code().name for watch in watches]


def _unproven(outsider: Outsider, method: str, body: bytes) -> Any:
    """Start a call on a separate connection, without credentials."""
    return outsider.connection().unary_stream(method)(body, timeout=HANG_SECONDS)
