# SPDX-License-Identifier: Apache-2.0
"""Segments: rings that a client on the same node shares, and the clients that break them."""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
from pathlib import Path

import pytest
from flight_messages import FlightData
from relay_exchanges import Exchange, exchange

from updraft.errors import ProtocolError
from updraft.service.lifecycle import StartError
from updraft.v1 import exchange_pb2
from updraft.v1.exchange_pb2 import Finish, ReplyMetadata, RequestMetadata, SegmentRange
from updraft_server.front.relay.segment import LEAST_BODY_BYTES, PATTERN, Segment, Segments
from updraft_server.ipc.frame_stream import BodyPlace, FrameReceiver, FrameSender, LostMemoryError
from updraft_server.ipc.frames import FrameKind, encode
from updraft_server.pool.leases import LeaseOutcome

RING = 4 * 1024 * 1024
BODY = RING // 4
REPLIES = 4096 + RING


class Client:
    """A client's side: it has mapped the file."""

    def __init__(self, offer: exchange_pb2.Segment) -> None:
        self.path = Path(offer.path)
        self.descriptor = os.open(self.path, os.O_RDWR)
        self.memory = mmap.mmap(self.descriptor, 4096 + 2 * RING)
        self.say(8, 1)

    def say(self, offset: int, number: int) -> None:
        self.memory[offset : offset + 8] = number.to_bytes(8, "little")


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    made = Segments(tmp_path, "owner").make()
    assert made is not None
    return made


def _reserved(segment: Segment, size_bytes: int) -> BodyPlace:
    place = segment.reserve(size_bytes)
    assert place is not None
    return place


def test_requests_follow_each_other_and_skip_the_end_of_the_ring(segment: Segment) -> None:
    client = Client(segment.offer)
    client.memory[4096:4101] = b"first"
    assert bytes(segment.request(SegmentRange(position=0, size_bytes=3 * BODY))[:5]) == b"first"
    client.memory[4096:4102] = b"second"
    assert bytes(segment.request(SegmentRange(position=RING, size_bytes=2 * BODY))[:6]) == b"second"


@pytest.mark.parametrize(
    ("position", "size_bytes"),
    [(1, BODY), (BODY, BODY), (2**64 - 1, BODY), (0, 0), (0, RING + 1), (0, 2**63)],
)
def test_an_impossible_range_of_a_request_is_refused(segment: Segment, position: int, size_bytes: int) -> None:
    with pytest.raises(ProtocolError, match="of the segment"):
        segment.request(SegmentRange(position=position, size_bytes=size_bytes))


def test_replies_have_no_place_before_the_client_has_mapped_the_file(segment: Segment) -> None:
    assert segment.reserve(BODY) is None
    client = Client(segment.offer)
    assert _reserved(segment, BODY).position == 0
    assert not client.path.exists()


def test_replies_wait_for_no_client_and_go_on_when_it_has_read(segment: Segment) -> None:
    client = Client(segment.offer)
    assert [_reserved(segment, BODY).position for _ in range(4)] == [0, BODY, 2 * BODY, 3 * BODY]
    assert segment.reserve(BODY) is None
    client.say(0, BODY)
    place = _reserved(segment, BODY)
    assert (place.position, place.offset) == (RING, REPLIES)
    assert segment.reserve(BODY) is None


@pytest.mark.parametrize("size_bytes", [0, LEAST_BODY_BYTES - 1, RING + 1])
def test_small_and_huge_replies_have_no_place(segment: Segment, size_bytes: int) -> None:
    Client(segment.offer)
    assert segment.reserve(size_bytes) is None


@pytest.mark.parametrize("read", [4 * BODY + 1, 2**64 - 1])
def test_a_client_cannot_have_read_more_than_there_was(segment: Segment, read: int) -> None:
    client = Client(segment.offer)
    for _ in range(4):
        _reserved(segment, BODY)
    client.say(0, read)
    with pytest.raises(ProtocolError, match=f"up to position {read}"):
        segment.reserve(BODY)


def test_a_client_cannot_take_back_what_it_has_read(segment: Segment) -> None:
    client = Client(segment.offer)
    for _ in range(4):
        _reserved(segment, BODY)
    client.say(0, 2 * BODY)
    for _ in range(2):
        _reserved(segment, BODY)
    client.say(0, BODY)
    with pytest.raises(ProtocolError, match="up to position"):
        segment.reserve(BODY)


async def test_a_reply_goes_through_the_ring(segment: Segment) -> None:
    client = Client(segment.offer)
    body = os.urandom(BODY)
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        receiver = FrameReceiver(right, max_payload_bytes=2 * BODY)
        receiver.reserve = segment.reserve
        sender = FrameSender(left)
        for number in range(3):
            sending = asyncio.create_task(sender.send(FrameKind.MESSAGE, b"metadata", b"header", body))
            frame = await receiver.receive()
            await sending
            fields = bytes(frame.app_metadata), bytes(frame.data_header), bytes(frame.data_body)
            assert fields == (b"metadata", b"header", b"")
            assert frame.place is not None
            start = REPLIES + number * BODY
            assert client.memory[start : start + BODY] == body
        await sender.send(FrameKind.DONE)
        assert (await receiver.receive()).kind is FrameKind.DONE


@pytest.mark.parametrize("kept_bytes", [0, REPLIES, REPLIES + 128 * 1024])
async def test_a_client_that_cuts_the_file_ends_its_own_exchange_only(segment: Segment, kept_bytes: int) -> None:
    client = Client(segment.offer)
    left, right = socket.socketpair()
    with left, right:
        right.setblocking(False)
        receiver = FrameReceiver(right, max_payload_bytes=2 * BODY)
        place = _reserved(segment, LEAST_BODY_BYTES * 4)
        receiver.reserve = lambda _: place
        os.ftruncate(client.descriptor, kept_bytes)
        left.setblocking(False)
        for piece in encode(FrameKind.MESSAGE, b"", b"", os.urandom(LEAST_BODY_BYTES * 4)):
            left.send(piece)
        with pytest.raises(LostMemoryError):
            await receiver.receive()


async def test_a_request_that_the_client_has_cut_cannot_be_sent(segment: Segment) -> None:
    client = Client(segment.offer)
    body = segment.request(SegmentRange(position=0, size_bytes=BODY))
    os.ftruncate(client.descriptor, 4096)
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        with pytest.raises(LostMemoryError):
            await FrameSender(left).send(FrameKind.BATCH, b"", b"", body)


@pytest.mark.parametrize(("access", "mode"), [("owner", 0o600), ("group", 0o660), ("everyone", 0o666)])
def test_who_may_connect_may_use_a_segment(tmp_path: Path, access: str, mode: int) -> None:
    segment = Segments(tmp_path, access).make()  # type: ignore[arg-type]
    assert segment is not None
    assert Path(segment.offer.path).stat().st_mode & 0o777 == mode
    segment.close()
    segment.close()
    assert not list(tmp_path.iterdir())


def test_segments_of_an_earlier_front_are_removed(tmp_path: Path, segment: Segment) -> None:
    (tmp_path / "other").touch()
    assert len(list(tmp_path.glob(PATTERN))) == 1
    Segments(tmp_path, "owner")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_without_memory_there_is_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert Segments(tmp_path, "owner").make() is None
    assert not list(tmp_path.iterdir())
    assert Segments(None, "owner").make() is None


def test_a_directory_that_cannot_be_used_fails_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"--segment-directory .*/missing is no directory"):
        Segments(tmp_path / "missing", "owner")


def _message(sequence: int, body: bytes = b"", place: SegmentRange | None = None) -> bytes:
    metadata = RequestMetadata(sequence=sequence, body=place).SerializeToString()
    return bytes(FlightData(data_header=b"h", app_metadata=metadata, data_body=body).SerializeToString())


_FINISH = bytes(FlightData(app_metadata=RequestMetadata(finish=Finish()).SerializeToString()).SerializeToString())


async def _offered(directory: Path) -> tuple[Exchange, asyncio.Task[LeaseOutcome], Client]:
    """Return a running exchange, whose client has mapped the segment that it was offered."""
    relayed = await exchange(
        [_message(number, os.urandom(BODY)) for number in range(1, 6)],
        ends=False,
        segments=Segments(directory, "owner"),
    )
    running = asyncio.create_task(relayed.run())
    count = 1
    await relayed.call.has_received(count)
    while not (offers := [reply for reply in _metadata(relayed) if reply.HasField("segment")]):
        count += 1
        await relayed.call.has_received(count)
    return relayed, running, Client(offers[0].segment)


def _files(directory: Path) -> int:
    return len(list(directory.iterdir()))


def _metadata(relayed: Exchange) -> list[ReplyMetadata]:
    return [ReplyMetadata.FromString(reply.app_metadata) for reply in relayed.call.received]


async def test_bodies_pass_through_a_segment_in_both_directions(tmp_path: Path) -> None:
    relayed, running, client = await _offered(tmp_path)
    await relayed.call.has_received(8)
    body = os.urandom(BODY)
    client.memory[4096 : 4096 + BODY] = body
    relayed.call.sent.put_nowait(_message(6, place=SegmentRange(size_bytes=BODY)))
    await relayed.call.has_received(9)
    reply = _metadata(relayed)[-1]
    start = REPLIES + reply.body.position
    assert (reply.body.size_bytes, client.memory[start : start + BODY]) == (BODY, body)
    assert relayed.call.received[-1].data_body == b""
    relayed.call.sent.put_nowait(_FINISH)
    relayed.call.sent.put_nowait(None)
    assert await running is LeaseOutcome.CLEAN
    assert relayed.transfer.segment_bytes_by_direction == {"received": BODY, "sent": BODY}
    assert relayed.transfer.sent_bytes > 6 * BODY
    assert _files(tmp_path) == 0


@pytest.mark.parametrize("kept_bytes", [0, 4096])
async def test_a_client_that_cuts_its_segment_gets_an_error(tmp_path: Path, kept_bytes: int) -> None:
    relayed, running, client = await _offered(tmp_path)
    os.ftruncate(client.descriptor, kept_bytes)
    relayed.call.sent.put_nowait(_message(6, place=SegmentRange(size_bytes=BODY)))
    with pytest.raises(ProtocolError, match="segment"):
        await running
    assert _files(tmp_path) == 0


async def test_a_client_that_never_maps_its_segment_gets_replies_in_messages(tmp_path: Path) -> None:
    relayed = await exchange(
        [*(_message(number, os.urandom(BODY)) for number in range(1, 9)), _FINISH],
        segments=Segments(tmp_path, "owner"),
    )
    assert await relayed.run() is LeaseOutcome.CLEAN
    assert sum(reply.HasField("segment") for reply in _metadata(relayed)) == 1
    assert sum(len(reply.data_body) for reply in relayed.call.received) == 8 * BODY
    assert _files(tmp_path) == 0
