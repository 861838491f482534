# SPDX-License-Identifier: Apache-2.0
"""Attempts of clients with batches in parts: false sizes, missing ends, false offsets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import grpc

from tests.attacks import clients, writer_clients
from tests.attacks.clients import BATCH, MIB, ROW, admitted, command, opened
from tests.attacks.outsiders import ClientAttempts, Conversation, Outsider
from tests.support.flight import FlightData, finishing, numbered
from updraft.v1.exchange_pb2 import BatchPart, Finish, KeepAlive, RequestMetadata
from updraft.v1.write_pb2 import WriteRequestMetadata

ATTEMPTS = ClientAttempts()
WRITER_ATTEMPTS = ClientAttempts()

GIB = 1 << 30
_MOST = (1 << 64) - 1
# Number of exchanges open at once, and number of repetitions, which together make thousands of exchanges.
_AT_ONCE, _ROUNDS = 25, 80
_HEADER, _BODY = BATCH
_Part = Callable[..., Any]


def _part(total: int, offset: int, data: bytes, header: bytes = b"") -> Any:
    """Return a part of a request batch."""
    metadata = RequestMetadata(part=BatchPart(body_bytes=total, offset=offset)).SerializeToString()
    return FlightData(app_metadata=metadata, data_body=data, data_header=header)


def _written_part(total: int, offset: int, data: bytes, header: bytes = b"") -> Any:
    """Return a part of a batch for a file."""
    metadata = WriteRequestMetadata(part=BatchPart(body_bytes=total, offset=offset)).SerializeToString()
    return FlightData(app_metadata=metadata, data_body=data, data_header=header)


def _wrong(part: _Part, number: Callable[[int], Any], finish: Any) -> list[list[Any]]:
    """Return sequences of messages that make no valid batch; most of them begin a batch of 16 bytes."""
    first = part(16, 0, bytes(8))
    return [
        [part(16, 0, bytes(17))],
        [first, part(16, 8, bytes(9))],
        [first, part(16, 16, bytes(8))],
        [first, part(16, _MOST, bytes(8))],
        [first, first],
        [first, part(24, 8, bytes(8))],
        [first, part(_MOST, 8, bytes(8))],
        [first, part(16, 8, b"")],
        [first, part(16, 8, bytes(8), _HEADER)],
        [first, number(1)],
        [first, number(2)],
        [first, number(0)],
        [first, finish],
        [part(0, 0, b"")],
        [part(0, 0, b"x")],
    ]


def _dripped(exchange: Conversation, part: _Part, seconds: float) -> Conversation:
    """Send a batch byte by byte, slowly but without a long silence."""
    until, offset = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        exchange.say(part(MIB, offset, b"x"))
        offset += 1
        # Send slowly, because slowness is the attack.
        time.sleep(0.1)
    return exchange


@ATTEMPTS("DEADLINE_EXCEEDED")
def claims_a_gibibyte_and_sends_nothing(outsider: Outsider) -> list[str]:
    exchanges = [opened(outsider, command(application=f"app-{number}")) for number in range(8)]
    for exchange in exchanges:
        exchange.say(_part(GIB, 0, b"x"))
    return [exchange.end() for exchange in exchanges]


@ATTEMPTS("INVALID_ARGUMENT")
def claims_more_than_a_batch_may_have(outsider: Outsider) -> list[str]:
    sizes = (GIB + 1, 1 << 40, 1 << 63, _MOST)
    return [opened(outsider, command()).say(_part(size, 0, b"x")).end() for size in sizes]


@ATTEMPTS("DEADLINE_EXCEEDED", "CANCELLED")
def sends_a_quarter_of_what_it_claims(outsider: Outsider) -> list[str]:
    def begun() -> Conversation:
        parts = [_part(GIB, number * 8 * MIB, bytes(8 * MIB)) for number in range(32)]
        return admitted(opened(outsider, command())).say(*parts)

    silent = begun()
    statuses = [silent.end()]
    left = begun()
    outsider.is_another_served()
    return [*statuses, left.leave()]


@ATTEMPTS("CANCELLED", "RESOURCE_EXHAUSTED")
def begins_batches_by_the_thousand_and_vanishes(outsider: Outsider) -> list[str]:
    statuses = []
    for _ in range(_ROUNDS):
        begun = [
            opened(outsider, command(application=f"app-{number}")).say(_part(GIB, 0, b"x"))
            for number in range(_AT_ONCE)
        ]
        # One of these exchanges has a worker, which has received the first part.
        with contextlib.suppress(grpc.RpcError):
            begun[0].hear()
        statuses += [exchange.leave() for exchange in begun]
    return statuses


@ATTEMPTS("INVALID_ARGUMENT")
def sends_parts_that_make_no_batch(outsider: Outsider) -> list[str]:
    wrong = _wrong(_part, lambda number: numbered(_HEADER, b"", number), finishing(0, 0))
    statuses = [admitted(opened(outsider, command())).say(*messages).end() for messages in wrong]
    half = admitted(opened(outsider, command())).say(_part(16, 0, bytes(8))).half_close()
    return [*statuses, half.end()]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_another_batch_between_the_parts_of_one(outsider: Outsider) -> list[str]:
    total = 4 * len(_BODY)
    return [admitted(opened(outsider, command())).say(_part(total, 0, bytes(8)), numbered(_HEADER, _BODY, 1)).end()]


@ATTEMPTS("OK")
def cuts_a_batch_into_single_bytes(outsider: Outsider) -> list[str]:
    parts = [_part(len(_BODY), place, _BODY[place : place + 1]) for place in range(len(_BODY))]
    alive = FlightData(app_metadata=RequestMetadata(keep_alive=KeepAlive()).SerializeToString())
    messages = [message for part in parts for message in (part, alive)]
    exchange = admitted(opened(outsider, command())).say(*messages, numbered(_HEADER, b"", 1))
    return [exchange.say(finishing(1, ROW.num_rows)).half_close().end()]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_parts_before_it_may_send_anything(outsider: Outsider) -> list[str]:
    wanted = clients.broadcast(bytes(MIB))
    waiting = opened(outsider, command(wanted)).say(_part(GIB, 0, b"x"))
    first = outsider.exchange(_part(GIB, 0, b"x"))
    return [waiting.end(), first.end()]


def _credited(outsider: Outsider, name: str, body_bytes: int) -> Conversation:
    made = writer_clients.command(outsider.root / name)
    return writer_clients.credited(writer_clients.opened(outsider, made), body_bytes)


def _numbered(number: int) -> Any:
    metadata = WriteRequestMetadata(sequence=number).SerializeToString()
    return FlightData(app_metadata=metadata, data_header=_HEADER)


@WRITER_ATTEMPTS("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
def reserves_the_quota_and_sends_a_first_part(outsider: Outsider) -> list[str]:
    exchanges = [_credited(outsider, f"{number}", 8 * MIB) for number in range(3)]
    for exchange in exchanges:
        exchange.say(_written_part(8 * MIB, 0, b"x"))
    return [exchange.end() for exchange in exchanges]


@WRITER_ATTEMPTS("DEADLINE_EXCEEDED")
def sends_a_batch_byte_after_byte(outsider: Outsider) -> list[str]:
    # Send for three times STALL_TIMEOUT_SECONDS.
    return [_dripped(_credited(outsider, "slow", MIB), _written_part, 6).end()]


@WRITER_ATTEMPTS("INVALID_ARGUMENT")
def claims_more_than_its_credit(outsider: Outsider) -> list[str]:
    sizes = (8193, GIB, 1 << 40, 1 << 63, _MOST)
    statuses = [_credited(outsider, "x", 8192).say(_written_part(size, 0, b"x")).end() for size in sizes]
    without = writer_clients.opened(outsider, writer_clients.command(outsider.root / "x"))
    return [*statuses, without.say(_written_part(GIB, 0, b"x")).end()]


@WRITER_ATTEMPTS("INVALID_ARGUMENT")
def asks_for_more_than_the_quota_can_hold(outsider: Outsider) -> list[str]:
    # The largest message, and so half of this writer's quota, has 64 MiB.
    sizes = (65 * MIB, GIB, GIB + 1)
    return [_credited(outsider, "x", size).say(_written_part(size, 0, b"x")).end() for size in sizes]


@WRITER_ATTEMPTS("CANCELLED")
def begins_files_by_the_thousand_and_vanishes(outsider: Outsider) -> list[str]:
    statuses = []
    for _ in range(_ROUNDS):
        begun = [_credited(outsider, f"{number}", MIB) for number in range(_AT_ONCE)]
        statuses += [exchange.say(_written_part(MIB, 0, bytes(4096))).leave() for exchange in begun]
    return statuses


@WRITER_ATTEMPTS("INVALID_ARGUMENT")
def writes_parts_that_make_no_batch(outsider: Outsider) -> list[str]:
    wrong = _wrong(_written_part, _numbered, writer_clients.said(finish=Finish()))
    statuses = [_credited(outsider, "x", 16).say(*messages).end() for messages in wrong]
    half = _credited(outsider, "x", 16).say(_written_part(16, 0, bytes(8))).half_close()
    return [*statuses, half.end()]
