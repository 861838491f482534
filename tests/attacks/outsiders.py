# SPDX-License-Identifier: Apache-2.0
"""Hostile client of a service with TLS and tokens, with any number of connections and messages of any kind."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import grpc

from tests.support.flight import FlightData

FLIGHT = "/arrow.flight.protocol.FlightService/"
# Timeout that an attempt exceeds only if the service hangs.
HANG_SECONDS = 60
HUNG = "hung"
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 64 << 20),
]


@dataclasses.dataclass(frozen=True)
class ClientAttempt:
    """Actions of a client, and the statuses that the service may return."""

    name: str
    run: Callable[[Any], Iterable[str] | None]
    """Function that returns the statuses that the client received."""
    told: frozenset[str]
    """Allowed statuses."""


class ClientAttempts:
    """Attempts of a group, in the order of their definition."""

    def __init__(self) -> None:
        self._attempts: list[ClientAttempt] = []

    def __call__(self, *told: str, name: str = "") -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Return a decorator that adds an attempt, which the service must always answer with one of these statuses."""

        def add(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
            self._attempts.append(ClientAttempt(name or run.__name__, run, frozenset(told)))
            return run

        return add

    def __iter__(self) -> Iterator[ClientAttempt]:
        return iter(self._attempts)


class Conversation:
    """Exchange that a test sends message by message, and that follows no rules."""

    def __init__(self, channel: grpc.Channel, headers: Iterable[tuple[str, str]]) -> None:
        self.details = ""
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = channel.stream_stream(FLIGHT + "DoExchange")
        self._call: Any = call(iter(self._requests.get, None), metadata=tuple(headers), timeout=HANG_SECONDS)

    def say(self, *messages: Any) -> Self:
        """Send messages, or invalid bytes."""
        for message in messages:
            self._requests.put(message if isinstance(message, bytes) else message.SerializeToString())
        return self

    def half_close(self) -> Self:
        """Half-close the call."""
        self._requests.put(None)
        return self

    def hear(self) -> Any:
        """Return the next reply; raise grpc.RpcError."""
        return FlightData.FromString(next(self._call))

    def end(self) -> str:
        """Read all replies and return the status."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError:
            pass
        finally:
            self._requests.put(None)
        code, self.details = self._call.code(), self._call.details() or ""
        return HUNG if self.details == "Deadline Exceeded" else str(code.name)

    def leave(self) -> str:
        """Cancel the exchange."""
        self._call.cancel()
        self._requests.put(None)
        return str(self._call.code().name)


class Outsider:
    """Client that reaches a service's port; a context manager that closes all its connections."""

    def __init__(self, address: str, certificate: bytes, token: str) -> None:
        self.token = token
        self._address = address
        self._certificate = certificate
        self._open = contextlib.ExitStack()
        self._channel: grpc.Channel | None = None
        self.victims_bytes = b""
        """Bytes of a victim's artifact, which a client may know."""
        self.root = self.outside = Path()
        """Directory with a writer's files, and a directory beside it."""
        self.is_another_served: Callable[[], object] = lambda: None
        """Function that raises AssertionError if the service does not serve other clients during the attempt."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def connection(self) -> grpc.Channel:
        """Open a new connection."""
        channel = grpc.secure_channel(self._address, grpc.ssl_channel_credentials(self._certificate), _OPTIONS)
        return self._open.enter_context(channel)

    @property
    def channel(self) -> grpc.Channel:
        """Return the shared connection."""
        if self._channel is None:
            self._channel = self.connection()
        return self._channel

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of an authorized client."""
        return (("authorization", f"Bearer {self.token}"),)

    def exchange(
        self,
        *messages: Any,
        headers: Iterable[tuple[str, str]] | None = None,
        over: grpc.Channel | None = None,
    ) -> Conversation:
        """Open an exchange that begins with these messages."""
        conversation = Conversation(over or self.channel, self.headers if headers is None else headers)
        self._open.callback(conversation.leave)
        return conversation.say(*messages)

    def call(self, method: str, body: bytes = b"", *, headers: Iterable[tuple[str, str]] | None = None) -> str:
        """Return the status of a call that takes one message."""
        call: Any = self.channel.unary_stream(FLIGHT + method)(
            body, metadata=tuple(self.headers if headers is None else headers), timeout=HANG_SECONDS
        )
        with contextlib.suppress(grpc.RpcError):
            for _ in call:
                pass
        return HUNG if call.details() == "Deadline Exceeded" else str(call.code().name)

    def socket(self, *, tls: bool = True) -> socket.socket:
        """Open a connection of raw bytes, with TLS or without."""
        host, _, port = self._address.rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=HANG_SECONDS)
        self._open.callback(plain.close)
        if not tls:
            return plain
        context = ssl.create_default_context(cadata=self._certificate.decode())
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])
        wrapped = context.wrap_socket(plain, suppress_ragged_eofs=True)
        self._open.callback(wrapped.close)
        return wrapped
