# SPDX-License-Identifier: Apache-2.0
"""Attempts of a pool's clients to make forbidden calls, and of strangers with connections and frames."""

from __future__ import annotations

import os

from tests.attacks.clients import command, opened
from tests.attacks.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    HELLO,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    flood,
    frame,
    request_headers,
)
from tests.attacks.outsiders import FLIGHT, ClientAttempts, Outsider
from tests.support.flight import _MESSAGES
from updraft.service.listeners import allow_all_descriptors

ATTEMPTS = ClientAttempts()

MANY, THOUSANDS = 300, 2000


def _action(kind: str, body: bytes = b"") -> bytes:
    return bytes(_MESSAGES["Action"](type=kind, body=body).SerializeToString())


@ATTEMPTS("UNAUTHENTICATED")
def comes_without_the_right_token(outsider: Outsider) -> list[str]:
    token = outsider.token
    wrong = ["", "Bearer ", "Bearer wrong", f"Basic {token}", token, f"Bearer {token[:-1]}", f"Bearer {token}x"]
    wrong += ["Bearer " + "x" * 4000, f"bearer{token}"]
    headers = [(("authorization", value),) for value in wrong]
    calls = [outsider.call(method, headers=header) for header in headers for method in ("ListActions", "DoAction")]
    return [
        *calls,
        *(outsider.exchange(headers=header).end() for header in headers),
        outsider.exchange(headers=()).end(),
    ]


@ATTEMPTS("UNIMPLEMENTED")
def calls_what_is_not_served(outsider: Outsider) -> list[str]:
    return [outsider.call(name, b"x") for name in ("DoGet", "DoPut", "Handshake", "GetSchema", "PollFlightInfo", "x\n")]


@ATTEMPTS("PERMISSION_DENIED")
def drains_the_pool_and_reads_stacks(outsider: Outsider) -> list[str]:
    actions = [_action("updraft.drain"), _action("updraft.worker_stack"), _action("updraft.worker_stack", b"1")]
    return [outsider.call("DoAction", action) for action in actions]


@ATTEMPTS("INVALID_ARGUMENT", "NOT_FOUND")
def asks_for_actions_and_flights_that_do_not_exist(outsider: Outsider) -> list[str]:
    kinds = ["updraft.kill", "x\n\x1b[2J", "n" * (1 << 20), "../drain", ""]
    actions = [outsider.call("DoAction", _action(kind)) for kind in kinds]
    garbage = [outsider.call(method, b"\xff" * 100) for method in ("DoAction", "GetFlightInfo")]
    return [*actions, *garbage, outsider.call("GetFlightInfo", b"\x08\x01" + b"\x1a\x00" * (1 << 20))]


@ATTEMPTS("CANCELLED", "RESOURCE_EXHAUSTED", "UNAVAILABLE")
def opens_and_cancels_exchanges_again_and_again(outsider: Outsider) -> list[str]:
    made = command()
    return [opened(outsider, made).leave() for _ in range(MANY)]


@ATTEMPTS()
def leaves_connections_half_open(outsider: Outsider) -> None:
    for _ in range(MANY):
        outsider.socket(tls=False)


@ATTEMPTS()
def opens_thousands_of_connections_and_says_nothing(outsider: Outsider) -> None:
    allow_all_descriptors()
    for _ in range(THOUSANDS):
        outsider.socket(tls=False)
    outsider.is_another_served()
    for _ in range(THOUSANDS):
        outsider.socket()


@ATTEMPTS()
def leaves_handshakes_half_done(outsider: Outsider) -> None:
    for number in range(MANY):
        outsider.socket(tls=False).sendall((b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0", os.urandom(50))[number % 3])


@ATTEMPTS()
def leaves_connections_half_open_within_tls(outsider: Outsider) -> None:
    for number in range(30):
        outsider.socket().sendall(HELLO[: number + 1])


@ATTEMPTS()
def speaks_no_http2_within_tls(outsider: Outsider) -> None:
    garbage = [os.urandom(5000), b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n", b"\xff\xff\xff" + bytes(6) + os.urandom(5000)]
    for piece in garbage:
        flood(outsider.socket(), piece, 10)
        flood(outsider.socket(), HELLO + piece, 10)


@ATTEMPTS()
def floods_with_pings_and_settings(outsider: Outsider) -> None:
    for piece in (frame(PING, 0, 0, bytes(8)), frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff" * 50)):
        connection = outsider.socket()
        connection.sendall(HELLO)
        flood(connection, piece * 100, 500)


@ATTEMPTS()
def floods_with_resets(outsider: Outsider) -> None:
    connection = outsider.socket()
    connection.sendall(HELLO + frame(SETTINGS, ACK, 0))
    block = request_headers(FLIGHT + "DoExchange", outsider.token)
    calls = [
        frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, bytes([0, 0, 0, 8]))
        for stream in range(1, 20_000, 2)
    ]
    for start in range(0, len(calls), 100):
        flood(connection, b"".join(calls[start : start + 100]), 1)


@ATTEMPTS()
def floods_with_headers_that_do_not_end(outsider: Outsider) -> None:
    connection = outsider.socket()
    connection.sendall(HELLO + frame(HEADERS, 0, 1, request_headers(FLIGHT + "DoExchange", outsider.token)))
    flood(connection, frame(CONTINUATION, 0, 1, request_headers("/" + "x" * 100, "t" * 100)) * 10, 2000)


@ATTEMPTS()
def floods_with_frames_of_nothing(outsider: Outsider) -> None:
    block = request_headers(FLIGHT + "DoExchange", outsider.token)
    for piece in (
        frame(DATA, 0, 1),
        frame(PRIORITY, 0, 1, bytes(5)),
        frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
        frame(WINDOW_UPDATE, 0, 1, bytes(4)),
    ):
        connection = outsider.socket()
        connection.sendall(HELLO + frame(HEADERS, END_HEADERS, 1, block))
        flood(connection, piece * 100, 300)


@ATTEMPTS()
def sends_a_message_of_gigabytes_that_never_ends(outsider: Outsider) -> None:
    block = request_headers(FLIGHT + "DoExchange", outsider.token)
    for length in (b"\x00\xff\xff\xff\xff", b"\x00\x07\xff\xff\xff", b"\x01\x00\x00\x00\x01"):
        connection = outsider.socket()
        connection.sendall(HELLO + frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, 0, 1, length))
        flood(connection, frame(DATA, 0, 1, bytes(1000)), 100)
    # If the front serves another client, it has processed what the attempt has sent.
    outsider.is_another_served()
