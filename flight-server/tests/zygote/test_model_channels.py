# SPDX-License-Identifier: Apache-2.0
"""Zygote's ends of the channels on which workers ask for models, and workers that misuse them."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from updraft_server.ipc.packet_codec import PacketError
from updraft_server.worker.model.channel import (
    MAX_PACKET_BYTES,
    AskFate,
    Connect,
    Connected,
    Fate,
    Packet,
    Refused,
    decode,
    encode,
)
from updraft_server.worker.model.watchdog import Watchdog
from updraft_server.zygote.model_channels import ModelChannels
from updraft_server.zygote.model_replica import ForkedModel, Replica


class Zygote:
    """Loop that the test advances step by step, while the test also acts as the worker."""

    def __init__(self) -> None:
        self.connects: list[tuple[str, str, str]] = []
        self.closed: list[str] = []
        self._handlers: dict[socket.socket | int, Callable[[], None]] = {}
        self.doors = ModelChannels(
            lambda *connect: self.connects.append(connect),
            self.closed.append,
            self._handlers.__setitem__,
            lambda source: self._handlers.pop(source, None) and None,
        )
        self.worker = self.doors.open("w-1")
        self.worker.settimeout(0)

    def hears(self, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
        socket.send_fds(self.worker, [data], list(descriptors))
        self.turn()

    def turn(self) -> None:
        for handler in list(self._handlers.values()):
            handler()

    def answer(self) -> Packet | None:
        """Return the answer, or None if the channel is closed; raise BlockingIOError if there is no answer yet."""
        data = self.worker.recv(MAX_PACKET_BYTES)
        return decode(data) if data else None


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.doors.close()
    made.worker.close()


def test_a_worker_that_asks_for_a_connection_is_heard_and_gets_an_end_of_its_own(zygote: Zygote) -> None:
    zygote.hears(encode(Connect("f", "1")))
    assert zygote.connects == [("w-1", "f", "1")]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        replica = Replica("model-1", 0, ForkedModel(0, 0, ours, Watchdog()), 0.0)
        zygote.doors.connect("w-1", replica)
        data, (workers_end,), _, _ = socket.recv_fds(zygote.worker, MAX_PACKET_BYTES, 1)
        assert decode(data) == Connected("model-1")
        _, (models_end,), _, _ = socket.recv_fds(theirs, MAX_PACKET_BYTES, 1)
        assert replica.connections == 1
        with socket.socket(fileno=workers_end) as mine, socket.socket(fileno=models_end) as other:
            mine.send(b"rows")
            assert other.recv(4) == b"rows"


def test_a_refusal_says_why_and_another_question_may_follow(zygote: Zygote) -> None:
    for _ in range(2):
        zygote.hears(encode(Connect("f", "1")))
        zygote.doors.refuse("w-1", "is broken", may_retry=True)
        assert zygote.answer() == Refused("is broken", may_retry=True)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"x",
        b"\xff" * 100,
        b"[" * MAX_PACKET_BYTES,
        b"{}",
        b"[]",
        b"[[]]",
        b'["Connect"]',
        b'["Connect", 1, 2]',
        b'["Connect", "f", "1", "2"]',
        b'["AskFate", {}]',
        encode(Connected("model-1")),
        encode(Fate("lives")),
        encode(Connect("f" * 2 * MAX_PACKET_BYTES, "1")),
    ],
)
def test_a_worker_that_says_anything_else_loses_its_door(zygote: Zygote, packet: bytes) -> None:
    if packet:
        zygote.hears(packet)
    else:
        zygote.worker.shutdown(socket.SHUT_WR)
        zygote.turn()
    assert zygote.answer() is None
    assert zygote.closed == ["w-1"]
    assert zygote.connects == []


def test_a_second_question_before_the_answer_to_the_first_closes_the_door(zygote: Zygote) -> None:
    zygote.hears(encode(Connect("f", "1")))
    zygote.hears(encode(Connect("f", "1")))
    assert zygote.answer() is None
    assert len(zygote.connects) == 1
    # The late answer has no recipient.
    zygote.doors.refuse("w-1", "is broken", may_retry=True)


def test_descriptors_that_a_worker_sends_are_not_taken(zygote: Zygote) -> None:
    own = Path("/proc/self/fd")
    before = len(list(own.iterdir()))
    # Since Linux 6.16 the kernel refuses to send descriptors here.
    with contextlib.suppress(PermissionError):
        zygote.hears(encode(Connect("f", "1")), (zygote.worker.fileno(),) * 10)
    assert len(list(own.iterdir())) == before


def test_the_fate_of_a_process_is_told_once_it_is_known(zygote: Zygote) -> None:
    zygote.hears(encode(AskFate("model-1")))
    with pytest.raises(BlockingIOError):
        zygote.answer()
    assert zygote.doors.wait_seconds[0] > 0
    zygote.doors.tell_fate("model-2", "exited with code 1")
    with pytest.raises(BlockingIOError):
        zygote.answer()
    zygote.doors.tell_fate("model-1", "was killed by SIGSEGV")
    assert zygote.answer() == Fate("was killed by SIGSEGV")
    zygote.hears(encode(AskFate("model-2")))
    assert zygote.answer() == Fate("exited with code 1")


def test_a_worker_that_has_ended_is_forgotten(zygote: Zygote) -> None:
    zygote.hears(encode(AskFate("model-1")))
    zygote.doors.shut("w-1")
    zygote.doors.tell_fate("model-1", "was killed by SIGSEGV")
    assert zygote.answer() is None


def test_a_worker_reads_nothing_but_packets() -> None:
    for data in (b"x", b"[" * 10_000, b'["Refused"]'):
        with pytest.raises(PacketError):
            decode(data)
