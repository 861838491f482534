# SPDX-License-Identifier: Apache-2.0
"""Segments: rings of memory shared with a client on the same node, and clients that break the rules."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import socket
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from flight_messages import FlightData
from relay_exchanges import Exchange, exchange

from updraft.errors import ProtocolError
from updraft.v1 import exchange_pb2
from updraft.v1.exchange_pb2 import BatchPart, Finish, ReplyMetadata, RequestMetadata, SegmentRange
from updraft_server.front.relay.segment import LEAST_BODY_BYTES, Segment, Segments
from updraft_server.ipc.frame_stream import BodyPlace, FrameReceiver, FrameSender, LostMemoryError
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.leases import LeaseOutcome

RING = 4 * 1024 * 1024
BODY = RING // 4
REPLIES = 4096 + RING


class Client:
    """Client's side of a segment, which has mapped the file."""

    def __init__(self, offer: exchange_pb2.Segment, segments: Segments) -> None:
        assert segments.directory is not None
        self.descriptor = os.open(segments.directory / offer.name, os.O_RDWR)
        self.memory = mmap.mmap(self.descriptor, 4096 + 2 * RING)
        self.say(8, 1)

    def say(self, offset: int, number: int) -> None:
        self.memory[offset : offset + 8] = number.to_bytes(8, "little")


@pytest.fixture
def segments(tmp_path: Path) -> Iterator[Segments]:
    made = Segments(tmp_path / "segments", "owner")
    yield made
    made.close()
    assert not list(tmp_path.iterdir())


@pytest.fixture
async def segment(segments: Segments) -> Segment:
    return await _made(segments)


@pytest.fixture
def client(segment: Segment, segments: Segments) -> Client:
    return Client(segment.offer, segments)


@pytest.fixture
def of_a_group(tmp_path: Path) -> Path:
    """Return a directory that passes its group on to new files."""
    tmp_path.chmod(0o2700)
    return tmp_path


async def _made(segments: Segments) -> Segment:
    made = await segments.make()
    assert made is not None
    return made


async def _names(segments: Segments) -> int:
    """Return how many files are left once closed segments are removed."""
    # The thread that removes files also makes them.
    last = await _made(segments)
    count = _listed(segments) - 1
    last.close()
    return count


def _listed(segments: Segments) -> int:
    assert segments.directory is not None
    return len(list(segments.directory.iterdir()))


def _reserved(segment: Segment, size_bytes: int) -> BodyPlace:
    place = segment.reserve(size_bytes)
    assert place is not None
    return place


def test_requests_follow_each_other_and_skip_the_end_of_the_ring(segment: Segment, client: Client) -> None:
    client.memory[4096:4101] = b"first"
    assert bytes(segment.request(SegmentRange(position=0, size_bytes=3 * BODY))[:5]) == b"first"
    client.memory[4096:4102] = b"second"
    assert bytes(segment.request(SegmentRange(position=RING, size_bytes=2 * BODY))[:6]) == b"second"


@pytest.mark.parametrize(
    ("position", "size_bytes"),
    [(1, BODY), (BODY, BODY), (2**64 - 1, BODY), (0, 0), (0, RING + 1), (0, 2**63)],
)
def test_an_impossible_range_of_a_request_is_refused(segment: Segment, position: int, size_bytes: int) -> None:
    with pytest.raises(ProtocolError, match=r"must be at 0|must have between 1 and"):
        segment.request(SegmentRange(position=position, size_bytes=size_bytes))


async def test_replies_have_no_place_before_the_client_has_mapped_the_file(segments: Segments) -> None:
    segment = await _made(segments)
    assert segment.reserve(BODY) is None
    Client(segment.offer, segments)
    assert await _names(segments) == 1
    assert _reserved(segment, BODY).position == 0
    assert await _names(segments) == 0


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("size_bytes", [0, LEAST_BODY_BYTES - 1, RING + 1])
def test_small_and_huge_replies_have_no_place(segment: Segment, size_bytes: int) -> None:
    assert segment.reserve(size_bytes) is None


def test_a_full_ring_has_no_place_until_the_client_has_read(segment: Segment, client: Client) -> None:
    assert [_reserved(segment, BODY).position for _ in range(4)] == [0, BODY, 2 * BODY, 3 * BODY]
    assert segment.reserve(BODY) is None
    client.say(0, BODY)
    assert _reserved(segment, BODY).position == RING
    assert segment.reserve(BODY) is None


def test_an_empty_ring_has_a_place_for_every_body(segment: Segment, client: Client) -> None:
    for number in range(9):
        assert _reserved(segment, 3 * BODY).position == number * RING
        client.say(0, number * RING + 3 * BODY)


@pytest.mark.parametrize("read", [4 * BODY + 1, 2**64 - 1])
def test_a_client_cannot_have_read_more_than_there_was(segment: Segment, client: Client, read: int) -> None:
    for _ in range(4):
        _reserved(segment, BODY)
    client.say(0, read)
    with pytest.raises(ProtocolError, match=f"up to position {read}"):
        segment.reserve(BODY)


def test_a_client_cannot_take_back_what_it_has_read(segment: Segment, client: Client) -> None:
    for _ in range(4):
        _reserved(segment, BODY)
    client.say(0, 2 * BODY)
    for _ in range(2):
        _reserved(segment, BODY)
    client.say(0, BODY)
    with pytest.raises(ProtocolError, match="up to position"):
        segment.reserve(BODY)


async def test_frames_with_and_without_places_stay_in_order(segment: Segment, client: Client) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        receiver, sender = FrameReceiver(right, max_payload_bytes=2 * RING), FrameSender(left)

        async def send(bodies: list[bytes]) -> None:
            for body in bodies:
                await sender.send(FrameKind.MESSAGE, b"metadata", b"header", body)

        # The front reads the first frame together with the beginning of the second.
        bodies = [os.urandom(size) for size in (10, BODY, BODY, 0, 100, LEAST_BODY_BYTES, 5 * BODY, BODY)]
        sending = asyncio.create_task(send(bodies))
        places = []
        for number, body in enumerate(bodies):
            frame = await receiver.receive()
            receiver.reserve = lambda header: segment.reserve(header.body_bytes)
            assert (bytes(frame.app_metadata), bytes(frame.data_header)) == (b"metadata", b"header")
            if frame.place is None:
                assert bytes(frame.data_body) == body
            else:
                start = REPLIES + frame.place.position % RING
                assert client.memory[start : start + len(body)] == body
                client.say(0, frame.place.position + len(body))
                places.append(number)
        assert places == [2, 5, 7]
        await sending


@pytest.mark.parametrize("kept_bytes", [0, REPLIES, REPLIES + 128 * 1024])
async def test_a_place_that_the_client_has_cut_off_is_an_error(
    segment: Segment, client: Client, kept_bytes: int
) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        place = _reserved(segment, LEAST_BODY_BYTES * 4)
        receiver = FrameReceiver(right, max_payload_bytes=2 * BODY)
        receiver.reserve = lambda _: place
        os.ftruncate(client.descriptor, kept_bytes)
        sending = asyncio.create_task(FrameSender(left).send(FrameKind.MESSAGE, b"", b"", os.urandom(4 * 65536)))
        with pytest.raises(LostMemoryError):
            await receiver.receive()
        sending.cancel()


async def test_a_request_that_the_client_has_cut_off_cannot_be_sent(segment: Segment, client: Client) -> None:
    body = segment.request(SegmentRange(position=0, size_bytes=BODY))
    os.ftruncate(client.descriptor, 4096)
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        with pytest.raises(LostMemoryError):
            await FrameSender(left).send(FrameKind.BATCH, b"", b"", body)


async def test_a_closed_segment_is_unmapped(segments: Segments, segment: Segment) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(segment.offer.name)

    assert mapped() == 1
    segment.close()
    assert await _names(segments) == 0
    assert mapped() == 0


@pytest.mark.parametrize(("access", "mode"), [("owner", 0o600), ("group", 0o660), ("everyone", 0o666)])
async def test_who_may_connect_may_open_a_segment_by_its_name(
    of_a_group: Path, access: Literal["owner", "group", "everyone"], mode: int
) -> None:
    segments = Segments(of_a_group / "segments", access)
    segment = await _made(segments)
    assert segments.directory is not None
    assert segments.directory.stat().st_mode & 0o7777 == 0o2711
    assert (segments.directory / segment.offer.name).stat().st_mode & 0o777 == mode
    segments.close()


async def test_a_front_removes_what_an_earlier_one_has_left(tmp_path: Path) -> None:
    earlier = Segments(tmp_path / "segments", "owner")
    await _made(earlier)
    later = Segments(tmp_path / "segments", "owner")
    assert await _names(later) == 0
    later.close()


async def test_without_memory_there_is_no_segment(segments: Segments, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert await segments.make() is None
    monkeypatch.undo()
    assert await _names(segments) == 0
    assert await Segments(None, "owner").make() is None


@pytest.mark.parametrize("obstacle", ["missing", "file", "link"])
async def test_without_a_directory_of_its_own_there_is_no_segment(tmp_path: Path, obstacle: str) -> None:
    place = tmp_path / "place"
    if obstacle == "file":
        place.touch()
    elif obstacle == "link":
        place.symlink_to(tmp_path)
    segments = Segments(place / "segments" if obstacle == "missing" else place, "owner")
    assert segments.directory is None
    assert await segments.make() is None
    segments.close()


def _message(sequence: int, body: bytes = b"", place: SegmentRange | None = None) -> bytes:
    metadata = RequestMetadata(sequence=sequence, body=place).SerializeToString()
    return bytes(FlightData(data_header=b"h", app_metadata=metadata, data_body=body).SerializeToString())


def _part(body: bytes) -> bytes:
    metadata = RequestMetadata(part=BatchPart(body_bytes=4 * BODY)).SerializeToString()
    return bytes(FlightData(app_metadata=metadata, data_body=body).SerializeToString())


_FINISH = bytes(FlightData(app_metadata=RequestMetadata(finish=Finish()).SerializeToString()).SerializeToString())


async def _offered(segments: Segments) -> tuple[Exchange, asyncio.Task[LeaseOutcome], Client]:
    """Return a running exchange, whose client has mapped the segment that it was offered."""
    relayed = await exchange(
        [_message(number, os.urandom(BODY)) for number in range(1, 4)], ends=False, segments=segments
    )
    running = asyncio.create_task(relayed.run())
    count = 1
    await relayed.call.has_received(count)
    sent = 4
    while not (offers := [reply for reply in _metadata(relayed) if reply.HasField("segment")]):
        relayed.call.sent.put_nowait(_message(sent, b"small"))
        sent += 1
        count += 1
        await relayed.call.has_received(count)
        # A thread makes the segment.
        await asyncio.sleep(0.01)
    await relayed.call.has_received(sent + 2)
    return relayed, running, Client(offers[0].segment, segments)


def _metadata(relayed: Exchange) -> list[ReplyMetadata]:
    return [ReplyMetadata.FromString(reply.app_metadata) for reply in relayed.call.received]


async def test_bodies_pass_through_a_segment_in_both_directions(segments: Segments) -> None:
    relayed, running, client = await _offered(segments)
    assert _metadata(relayed)[0].admitted.segment_directory == str(segments.directory)
    count = len(relayed.call.received)
    body = os.urandom(BODY)
    client.memory[4096 : 4096 + BODY] = body
    relayed.call.sent.put_nowait(_message(100, place=SegmentRange(position=0, size_bytes=BODY)))
    await relayed.call.has_received(count + 1)
    reply = _metadata(relayed)[-1]
    start = REPLIES + reply.body.position
    assert (reply.body.size_bytes, client.memory[start : start + BODY]) == (BODY, body)
    assert relayed.call.received[-1].data_body == b""
    # The parts of a large batch do not use the segment, and neither does its last message, which has the header.
    for message in (_part(body), _part(b""), _part(body), _message(101, body)):
        relayed.call.sent.put_nowait(message)
    await relayed.call.has_received(count + 5)
    assert [len(reply.data_body) for reply in relayed.call.received[-4:]] == [BODY, 0, BODY, BODY]
    relayed.call.sent.put_nowait(_FINISH)
    relayed.call.sent.put_nowait(None)
    assert await running is LeaseOutcome.CLEAN
    assert relayed.transfer.segment_bytes_by_direction == {"received": BODY, "sent": BODY}
    assert relayed.transfer.sent_bytes > 7 * BODY
    assert await _names(segments) == 0


@pytest.mark.parametrize("kept_bytes", [0, 4096])
async def test_a_client_that_cuts_its_segment_gets_an_error(segments: Segments, kept_bytes: int) -> None:
    relayed, running, client = await _offered(segments)
    os.ftruncate(client.descriptor, kept_bytes)
    relayed.call.sent.put_nowait(_message(100, place=SegmentRange(position=0, size_bytes=BODY)))
    with pytest.raises(ProtocolError, match="segment"):
        await running
    assert await _names(segments) == 0


async def test_a_client_that_never_maps_its_segment_gets_replies_in_messages(segments: Segments) -> None:
    relayed = await exchange(
        [*(_message(number, os.urandom(BODY)) for number in range(1, 9)), _FINISH], segments=segments
    )
    assert await relayed.run() is LeaseOutcome.CLEAN
    assert sum(len(reply.data_body) for reply in relayed.call.received) == 8 * BODY
    async with asyncio.timeout(30):
        # A thread may still have been making the segment.
        while await _names(segments) > 0:
            pass


@pytest.mark.parametrize(("free_blocks", "is_made"), [(1 << 20, True), ((1 << 19) + 1024, False)])
async def test_half_of_the_shared_memory_is_left_to_functions(
    monkeypatch: pytest.MonkeyPatch, free_blocks: int, is_made: bool
) -> None:
    volume = types.SimpleNamespace(f_frsize=4096, f_blocks=1 << 20, f_bavail=free_blocks)
    monkeypatch.setattr(os, "fstatvfs", lambda _: volume)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        segments = Segments(Path(directory) / "segments", "owner")
        made = await segments.make()
        assert (made is not None) == is_made
        if made is not None:
            made.close()
        segments.close()
