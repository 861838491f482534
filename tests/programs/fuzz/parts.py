# SPDX-License-Identifier: Apache-2.0
"""Batches in parts: sequences of messages, valid or changed, joined into one byte string of a fuzzed input."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from tests.programs.fuzz.arrow import changed_batch, pieces_of
from tests.programs.fuzz.target import Pieces, mutated, number
from updraft.batch_parts import last_part, parts_before_last
from updraft.flight_data import join_flight_data
from updraft.v1.exchange_pb2 import BatchPart, Finish, KeepAlive, RequestMetadata
from updraft.v1.write_pb2 import Ask, WriteRequestMetadata

Metadata: TypeAlias = type[RequestMetadata] | type[WriteRequestMetadata]

_LENGTH_BYTES = 4
_MOST_BATCHES = 3
_MOST_PARTS = 40
_MOST_CHANGES = 4
_LARGE_BYTES = 3 << 20
_U64 = (1 << 64) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Message:
    event: dict[str, Any]
    header: bytes = b""
    body: bytes = b""

    def encoded(self, metadata: Metadata) -> bytes:
        said = metadata(**self.event).SerializeToString()
        return join_flight_data(memoryview(self.header), said, memoryview(self.body))


_Messages: TypeAlias = list[_Message]


def parted_batches(metadata: Metadata, chance: random.Random) -> Pieces:
    """Return a schema's header, and all later messages joined. Messages to a writer have an ask before each batch."""
    schema, header, body = _batch(chance)
    rows = _rows(schema, header, body)
    messages: _Messages = []
    batches = chance.randrange(1, _MOST_BATCHES + 1)
    for sequence in range(1, batches + 1):
        if metadata is WriteRequestMetadata:
            messages.append(_Message({"ask": Ask(body_bytes=len(body))}))
        messages += _in_parts(sequence, header, body, chance)
    messages.append(_finish(batches, rows * batches))
    if chance.random() < 0.9:
        for _ in range(chance.randrange(1, _MOST_CHANGES + 1)):
            messages = chance.choice(_CHANGES)(messages, chance)
    encoded = [message.encoded(metadata) for message in messages]
    if encoded and chance.random() < 0.2:
        place = chance.randrange(len(encoded))
        encoded[place] = mutated(encoded[place], chance)
    return [schema, b"".join(len(message).to_bytes(_LENGTH_BYTES, "little") + message for message in encoded)]


def messages_in(text: bytes) -> Iterator[bytes]:
    """Split any byte string into messages, with the framing of `parted_batches`."""
    while text:
        length = int.from_bytes(text[:_LENGTH_BYTES], "little")
        yield text[_LENGTH_BYTES : _LENGTH_BYTES + length]
        text = text[_LENGTH_BYTES + length :]


def _batch(chance: random.Random) -> Pieces:
    """Return the headers of a schema and a batch, and the batch's body. Most batches are valid, a few are large."""
    if chance.random() < 0.5:
        return changed_batch(chance)
    size_bytes = _LARGE_BYTES if chance.random() < 0.02 else chance.randrange(20_000)
    return pieces_of(pa.record_batch({"text": ["x" * size_bytes, None, "y"], "number": [1, None, 3]}))


def _rows(schema: bytes, header: bytes, body: bytes) -> int:
    """Return the number of a batch's rows, for a correct finish; 0 if the batch is not valid."""
    try:
        prefixed = [b"\xff\xff\xff\xff" + len(piece).to_bytes(4, "little") + piece for piece in (schema, header)]
        stream = pa.ipc.open_stream(pa.py_buffer(prefixed[0] + prefixed[1] + body))
        return int(next(iter(stream)).num_rows)
    except (pa.ArrowException, OSError, StopIteration, ValueError):
        return 0


def _in_parts(sequence: int, header: bytes, body: bytes, chance: random.Random) -> _Messages:
    least_bytes = max(1, len(body) // _MOST_PARTS)
    part_bytes = max(least_bytes, chance.choice((1, 7, 64, 1000, len(body) // 2, len(body))))
    view = memoryview(body)
    parts = [_Message({"part": part}, b"", bytes(data)) for part, data in parts_before_last(view, part_bytes)]
    return [*parts, _Message({"sequence": sequence}, header, bytes(last_part(view, part_bytes)))]


def _finish(batches: int, rows: int) -> _Message:
    return _Message({"finish": Finish(batches=batches, rows=rows)})


def _says_another_size(messages: _Messages, chance: random.Random) -> _Messages:
    """Change the announced size in one part or in all parts."""
    size_bytes, everywhere = _any_size(messages, chance), chance.random() < 0.5
    return _with_parts(messages, chance, everywhere, lambda part: BatchPart(body_bytes=size_bytes, offset=part.offset))


def _says_another_place(messages: _Messages, chance: random.Random) -> _Messages:
    offset = _any_size(messages, chance)
    return _with_parts(messages, chance, False, lambda part: BatchPart(body_bytes=part.body_bytes, offset=offset))


def _asks_for_another_size(messages: _Messages, chance: random.Random) -> _Messages:
    ask = Ask(body_bytes=_any_size(messages, chance))
    return [
        dataclasses.replace(message, event={"ask": ask}) if "ask" in message.event else message for message in messages
    ]


def _any_size(messages: _Messages, chance: random.Random) -> int:
    near = sum(len(message.body) for message in messages) + chance.randrange(-9, 10)
    return chance.choice((near, 1 << 30, (1 << 30) - 8, number(chance))) & _U64


def _with_parts(
    messages: _Messages, chance: random.Random, everywhere: bool, change: Callable[[BatchPart], BatchPart]
) -> _Messages:
    places = [place for place, message in enumerate(messages) if "part" in message.event]
    changed = set(places if everywhere else places and [chance.choice(places)])
    return [
        dataclasses.replace(message, event={"part": change(message.event["part"])}) if place in changed else message
        for place, message in enumerate(messages)
    ]


def _leaves_one_out(messages: _Messages, chance: random.Random) -> _Messages:
    place = chance.randrange(len(messages) + 1)
    return messages[:place] + messages[place + 1 :]


def _says_one_twice(messages: _Messages, chance: random.Random) -> _Messages:
    place = chance.randrange(len(messages) + 1)
    return messages[: place + 1] + messages[place:]


def _says_one_elsewhere(messages: _Messages, chance: random.Random) -> _Messages:
    rest = list(messages)
    if rest:
        moved = rest.pop(chance.randrange(len(rest)))
        rest.insert(chance.randrange(len(rest) + 1), moved)
    return rest


def _ends_early(messages: _Messages, chance: random.Random) -> _Messages:
    return messages[: chance.randrange(len(messages) + 1)]


def _says_something_between(messages: _Messages, chance: random.Random) -> _Messages:
    size_bytes = _any_size(messages, chance)
    other = chance.choice(
        (
            _Message({"keep_alive": KeepAlive()}),
            _Message({"keep_alive": KeepAlive()}, b"", b"data"),
            _Message({"part": BatchPart(body_bytes=size_bytes, offset=0)}, b"", b"part"),
            _Message({"part": BatchPart(body_bytes=size_bytes, offset=0)}),
            _Message({"sequence": chance.randrange(4)}),
            _Message({"sequence": 1}, b"header", b"body"),
            _finish(chance.randrange(3), 0),
            _Message({}),
        )
    )
    place = chance.randrange(len(messages) + 1)
    return [*messages[:place], other, *messages[place:]]


def _changes_the_data_of_one(messages: _Messages, chance: random.Random) -> _Messages:
    if not messages:
        return messages
    place = chance.randrange(len(messages))
    found = messages[place]
    header, body = chance.choice(
        (
            (found.header, found.body[:-1]),
            (found.header, found.body + b"\0"),
            (found.header, b""),
            (b"", found.body),
            (b"header", found.body),
            (found.header, found.body * 2),
            (found.header, mutated(found.body, chance)),
            (mutated(found.header, chance), found.body),
        )
    )
    return [*messages[:place], dataclasses.replace(found, header=header, body=body), *messages[place + 1 :]]


_CHANGES: tuple[Callable[[_Messages, random.Random], _Messages], ...] = (
    _says_another_size,
    _says_another_place,
    _asks_for_another_size,
    _leaves_one_out,
    _says_one_twice,
    _says_one_elsewhere,
    _ends_early,
    _says_something_between,
    _changes_the_data_of_one,
)
