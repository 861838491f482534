# SPDX-License-Identifier: Apache-2.0
"""The bytes of calls between a connector and a service: recorded on their way, changed, or answered from a record.

A call of any of Flight's methods is a stream of messages each way to gRPC, so one handler serves all.
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
# Calls of one small query at a time, and its health checks.
_CALLS = 8

# Field 15999: no message of this release has it.
_OF_THE_NEXT_RELEASE = b"\xfa\xe7\x07\x03new"

Change = Callable[[str, str, bytes], bytes]
"""From the method, the sender and a message to what arrives in its place."""


@dataclass
class RecordedCall:
    """What was said in one call, in the order in which it passed."""

    method: str
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    """(sender, message)."""
    code: str = "OK"

    def of(self, sender: str) -> list[bytes]:
        """The messages of one side."""
        return [message for from_, message in self.messages if from_ == sender]


def load(path: Path) -> list[RecordedCall]:
    """The calls of a file."""
    calls = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        messages = [(sender, base64.b64decode(message)) for sender, message in entry["messages"]]
        calls.append(RecordedCall(entry["method"], messages, entry["code"]))
    return calls


def save(path: Path, calls: Sequence[RecordedCall]) -> None:
    """Write the calls, a line each."""
    lines = []
    for call in calls:
        messages = [(sender, base64.b64encode(message).decode()) for sender, message in call.messages]
        lines.append(json.dumps({"method": call.method, "messages": messages, "code": call.code}))
    path.write_text("\n".join(lines) + "\n")


def event_of(message: bytes, metadata: type[Any]) -> str:
    """What a FlightData says in its app_metadata, "data" for what has none."""
    data = FlightData.FromString(message)
    return metadata.FromString(data.app_metadata).WhichOneof("event") or "data" if data.app_metadata else "data"


def later(kind: type[Message], encoded: bytes) -> bytes:
    """A message as a later release could write it: with a field more, and so each message in it."""
    message = kind.FromString(encoded)
    _extend(message)
    return bytes(message.SerializeToString())


def later_event() -> bytes:
    """A reply that a later release could send: an event that this one does not know."""
    return bytes(FlightData(app_metadata=_OF_THE_NEXT_RELEASE).SerializeToString())


def _extend(message: Message) -> None:
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        for part in value if descriptor.is_repeated else [value]:
            _extend(part)
    message.MergeFromString(_OF_THE_NEXT_RELEASE)


class Passing:
    """A service that passes each call on to another one."""

    def __init__(self, target: str, change: Change | None = None, *, between: Sequence[bytes] = ()):
        """`between` is said before each reply of an exchange."""
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
    """A service that answers each call as a recorded one of its method was answered, in the order of the record."""

    def __init__(
        self,
        calls: Sequence[RecordedCall],
        change: Change | None = None,
        opening: Callable[[bytes], Sequence[bytes]] | None = None,
        answers: Callable[[bytes], bool] | None = None,
    ):
        """`opening` gives what is said to a first request before what is on record.

        `answers` says which replies wait for all requests that came before them; the others only for the first.
        """
        self._answers = answers or _answers
        self._left = list(calls)
        self._change = change or (lambda _method, _sender, message: message)
        self._opening = opening or (lambda _first: ())

    def serve(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer one call: each reply when the requests have come that it answers."""
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
                # A client may send on before it is admitted, or wait: either is as on record.
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
    """The address at which the service listens."""

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
    """Whether a pool says it only after a batch."""
    metadata = ReplyMetadata.FromString(FlightData.FromString(reply).app_metadata)
    return metadata.consumed > 0 or metadata.WhichOneof("event") in ("sequence", "finish", "error")


def _is_grpcs_own(name: str) -> bool:
    return name.startswith(("grpc-", ":")) or name in ("user-agent", "te", "content-type")
