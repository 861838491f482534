# SPDX-License-Identifier: Apache-2.0
"""Calls between a connector and a service: recorded by a proxy, altered, or answered from a recording.

For gRPC, a call of any Flight method is a stream of messages in each direction, so one handler serves all methods.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition
from typing import Any

import grpc
from google.protobuf.message import Message

from tests.support.flight import FlightData
from updraft.v1.exchange_pb2 import ReplyMetadata

CLIENT, SERVICE = "client", "service"
_FLIGHT, _METHODS = "arrow.flight.protocol.FlightService", ("DoExchange", "DoAction")
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_WAIT_SECONDS = 60
# Enough for one small query at a time with its health checks.
_CALLS = 8

# Field 15999, which no message of this release has.
_OF_THE_NEXT_RELEASE = b"\xfa\xe7\x07\x03new"

Change = Callable[[str, str, bytes], bytes]
"""Function from a method, a sender and a message to the message that replaces it."""


@dataclass
class RecordedCall:
    """Messages of one call, in order."""

    method: str
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    """Pairs of (sender, message)."""
    code: str = "OK"

    def of(self, sender: str) -> list[bytes]:
        """Return the messages of one side."""
        return [message for from_, message in self.messages if from_ == sender]


def load(path: Path) -> list[RecordedCall]:
    """Return the calls in a file."""
    calls = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        messages = [(sender, base64.b64decode(message)) for sender, message in entry["messages"]]
        calls.append(RecordedCall(entry["method"], messages, entry["code"]))
    return calls


def save(path: Path, calls: Sequence[RecordedCall]) -> None:
    """Write the calls, one per line."""
    lines = []
    for call in calls:
        messages = [(sender, base64.b64encode(message).decode()) for sender, message in call.messages]
        lines.append(json.dumps({"method": call.method, "messages": messages, "code": call.code}))
    path.write_text("\n".join(lines) + "\n")


def event_of(message: bytes, metadata: type[Any]) -> str:
    """Return the event in a FlightData's app_metadata; "data" if it has none."""
    data = FlightData.FromString(message)
    return metadata.FromString(data.app_metadata).WhichOneof("event") or "data" if data.app_metadata else "data"


def later(kind: type[Message], encoded: bytes) -> bytes:
    """Return a message as a later release could write it: with one more field in it and in each nested message."""
    message = kind.FromString(encoded)
    _extend(message)
    return bytes(message.SerializeToString())


def later_event() -> bytes:
    """Return a reply that a later release could send, with an event that this one does not know."""
    return bytes(FlightData(app_metadata=_OF_THE_NEXT_RELEASE).SerializeToString())


def _extend(message: Message) -> None:
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        for part in value if descriptor.is_repeated else [value]:
            _extend(part)
    message.MergeFromString(_OF_THE_NEXT_RELEASE)


class Passing:
    """Service that passes each call on to another one."""

    def __init__(self, target: str, change: Change | None = None, *, between: Sequence[bytes] = ()):
        """Create a proxy; it sends `between` before each reply of an exchange."""
        self._target = target
        self._between = between
        self._change = change or (lambda _method, _sender, message: message)
        self.calls: list[RecordedCall] = []

    def serve(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer one call."""
        call = RecordedCall(method)
        self.calls.append(call)

        def passed(sender: str, message: bytes) -> bytes:
            call.messages.append((sender, message))
            return self._change(method, sender, message)

        metadata = [(name, value) for name, value in context.invocation_metadata() if not _is_grpcs_own(name)]
        with grpc.insecure_channel(self._target, options=_NO_LIMIT) as channel:
            onward = channel.stream_stream(method)
            replies = onward((passed(CLIENT, message) for message in requests), metadata=metadata)
            context.add_callback(replies.cancel)
            try:
                for reply in replies:
                    yield from self._between if "Exchange" in method else ()
                    yield passed(SERVICE, reply)
            except grpc.RpcError as error:
                call.code = error.code().name
                context.set_trailing_metadata(error.trailing_metadata())
                context.abort(error.code(), error.details() or "")


class Replaying:
    """Service that answers each call from the record: the n-th call of a method gets the n-th recorded answer."""

    def __init__(
        self,
        calls: Sequence[RecordedCall],
        change: Change | None = None,
        opening: Callable[[bytes], Sequence[bytes]] | None = None,
        answers: Callable[[bytes], bool] | None = None,
    ):
        """Create a service; `opening` returns messages to send before the recorded ones, given the first request.

        `answers` returns whether a reply waits for all requests recorded before it; other replies wait only for the
        first.
        """
        self._answers = answers or _answers
        self._left = list(calls)
        self._change = change or (lambda _method, _sender, message: message)
        self._opening = opening or (lambda _first: ())

    def serve(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer one call: send each reply once the requests that it answers have arrived."""
        call = next((call for call in self._left if call.method == method), None)
        if call is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"the record has no further call of {method}")
            raise AssertionError("abort raises")
        if "Exchange" in method:
            self._left.remove(call)
        arrived, changed, ended, opened = list[bytes](), Condition(), False, False

        def read() -> None:
            nonlocal ended
            for request in requests:
                with changed:
                    arrived.append(request)
                    changed.notify()
            with changed:
                ended = True
                changed.notify()

        with ThreadPoolExecutor(1) as reader:
            reader.submit(read)
            is_exchange, asked = "Exchange" in method, 0
            for sender, message in call.messages:
                if sender == CLIENT:
                    asked += 1
                    continue
                # Before its admission, a client may send more messages or wait. The recording fits both.
                is_answer = not is_exchange or self._answers(message)
                needed = asked if is_answer else 1
                with changed:
                    while not ended and len(arrived) < needed and changed.wait(_WAIT_SECONDS):
                        pass
                if is_exchange and asked and not opened:
                    opened = True
                    yield from self._opening(arrived[0])
                yield self._change(method, sender, message)


@contextmanager
def serving(service: Passing | Replaying) -> Iterator[str]:
    """Yield the address at which the service listens."""

    def handler(method: str) -> Any:
        path = f"/{_FLIGHT}/{method}"
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: service.serve(path, requests, context))

    handlers = grpc.method_handlers_generic_handler(_FLIGHT, {method: handler(method) for method in _METHODS})
    with ThreadPoolExecutor(_CALLS) as threads:
        server = grpc.server(threads, handlers=[handlers], options=_NO_LIMIT)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(grace=None).wait(_WAIT_SECONDS)


def _answers(reply: bytes) -> bool:
    """Return whether a pool sends this reply only after a batch."""
    metadata = ReplyMetadata.FromString(FlightData.FromString(reply).app_metadata)
    return metadata.consumed > 0 or metadata.WhichOneof("event") in ("sequence", "finish", "error")


def _is_grpcs_own(name: str) -> bool:
    return name.startswith(("grpc-", ":")) or name in ("user-agent", "te", "content-type")
