# SPDX-License-Identifier: Apache-2.0
import asyncio
import random
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft_server.ipc.frame_stream import FrameReceiver, FrameSender, FrameTooLargeError, PeerClosedError
from updraft_server.ipc.frames import FrameError, FrameKind, encode, encode_header

MIB = 1024 * 1024

Fields = tuple[bytes, bytes, bytes]
Ends = tuple[socket.socket, socket.socket]
fields = st.tuples(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=3000))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


async def received(receiver: FrameReceiver, count: int) -> list[Fields]:
    frames = []
    for _ in range(count):
        frame = await receiver.receive()
        frames.append((bytes(frame.app_metadata), bytes(frame.data_header), bytes(frame.data_body)))
    return frames


async def send_all(peer: socket.socket, frames: list[Fields]) -> None:
    sender = FrameSender(peer)
    for frame in frames:
        await sender.send(FrameKind.BATCH, *frame)


async def test_frames_of_every_size_arrive_whole_and_in_order(ends: Ends) -> None:
    rng = random.Random(1)
    sizes = [0, 1, 63 * 1024, 64 * 1024, 65 * 1024, 3 * MIB, 5, 9 * MIB, 100, MIB]
    frames = [(rng.randbytes(size % 50), rng.randbytes(size % 400), rng.randbytes(size)) for size in sizes]
    receiver = FrameReceiver(ends[1], max_payload_bytes=16 * MIB)
    sending = asyncio.create_task(send_all(ends[0], frames))
    assert await received(receiver, len(frames)) == frames
    await sending


@settings(deadline=None)
@given(st.lists(fields, max_size=20), st.integers(1, 5000))
def test_any_frames_survive_any_fragmentation(frames: list[Fields], piece_bytes: int) -> None:
    async def run() -> None:
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            right.setblocking(False)
            receiver = FrameReceiver(right, max_payload_bytes=MIB)
            stream = b"".join(bytes(piece) for frame in frames for piece in encode(FrameKind.BATCH, *frame))
            sending = asyncio.create_task(send_in_pieces(left, stream, piece_bytes))
            assert await received(receiver, len(frames)) == frames
            await sending

    asyncio.run(run())


async def send_in_pieces(peer: socket.socket, stream: bytes, piece_bytes: int) -> None:
    for start in range(0, len(stream), piece_bytes):
        await asyncio.get_running_loop().sock_sendall(peer, stream[start : start + piece_bytes])
        await asyncio.sleep(0)


async def test_a_frame_beyond_the_limit_is_refused_before_memory_is_taken_for_it(ends: Ends) -> None:
    receiver = FrameReceiver(ends[1], max_payload_bytes=MIB)
    ends[0].send(encode_header(FrameKind.MESSAGE, body_bytes=2**39))
    with pytest.raises(FrameTooLargeError):
        await receiver.receive()


async def test_garbage_is_a_frame_error(ends: Ends) -> None:
    ends[0].send(b"\xee" * 100)
    with pytest.raises(FrameError):
        await FrameReceiver(ends[1], max_payload_bytes=MIB).receive()


async def test_a_peer_that_closes_within_a_frame_is_noticed(ends: Ends) -> None:
    ends[0].send(b"".join(bytes(piece) for piece in encode(FrameKind.MESSAGE, b"", b"", bytes(100)))[:50])
    ends[0].close()
    with pytest.raises(PeerClosedError):
        await FrameReceiver(ends[1], max_payload_bytes=MIB).receive()


async def test_what_a_dead_peer_sent_is_still_received(ends: Ends) -> None:
    receiver = FrameReceiver(ends[1], max_payload_bytes=MIB)
    await send_all(ends[0], [(b"last", b"words", b"")])
    receiver.peer_is_gone()
    assert await received(receiver, 1) == [(b"last", b"words", b"")]
    with pytest.raises(PeerClosedError):
        await receiver.receive()


async def test_a_waiting_receiver_wakes_when_the_peer_is_gone(ends: Ends) -> None:
    receiver = FrameReceiver(ends[1], max_payload_bytes=MIB)
    waiting = asyncio.create_task(receiver.receive())
    await asyncio.sleep(0)
    receiver.peer_is_gone()
    with pytest.raises(PeerClosedError):
        await asyncio.wait_for(waiting, 60)


async def test_sending_to_a_closed_peer_is_noticed(ends: Ends) -> None:
    ends[1].close()
    with pytest.raises(PeerClosedError):
        await FrameSender(ends[0]).send(FrameKind.BATCH, b"x")


async def test_a_cancelled_receiver_leaves_no_watch_on_the_socket(ends: Ends) -> None:
    receiver = FrameReceiver(ends[1], max_payload_bytes=MIB)
    waiting = asyncio.create_task(receiver.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert asyncio.get_running_loop().remove_reader(ends[1].fileno()) is False
