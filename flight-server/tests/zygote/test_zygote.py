# SPDX-License-Identifier: Apache-2.0
"""Zygote as its fronts see it, packet by packet; the tests are the fronts."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pool_driver import Zygotes
from tests.support.constants import with_constants
from zygote_fronts import HANG_SECONDS, Front, ends

from updraft_server.ipc.function_list import decode_functions
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import (
    Claim,
    Continue,
    Exited,
    Kill,
    Measure,
    Measured,
    Retired,
    Stop,
    WentOn,
)


@pytest.fixture(scope="module", autouse=True)
def short_claims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let zygotes end unclaimed workers sooner; the fronts of these tests claim theirs at once."""
    values = {"updraft_server.zygote.workers._CLAIM_SECONDS": 3.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", with_constants(tmp_path_factory.mktemp("short"), values)["PYTHONPATH"])
        yield


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory, short_claims: None) -> Iterator[Zygotes]:
    started = Zygotes(tmp_path_factory.mktemp("zygote"), WorkerSettings())
    yield started
    started.stop()


@pytest.fixture
def front(zygotes: Zygotes) -> Iterator[Front]:
    connected = Front(zygotes.connection())
    yield connected
    connected.close()


@pytest.fixture
def other_front(zygotes: Zygotes) -> Iterator[Front]:
    connected = Front(zygotes.connection())
    yield connected
    connected.close()


def lives(pidfd: int) -> bool:
    return select.select([pidfd], [], [], 0)[0] == []


def is_stopped(pidfd: int) -> bool:
    info = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    pid = next(line.split()[1] for line in info.splitlines() if line.startswith("Pid:"))
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def until(condition: Callable[[], bool]) -> None:
    give_up_seconds = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < give_up_seconds
        time.sleep(0.01)


def test_it_says_first_what_its_workers_are(front: Front) -> None:
    assert [function.name for function in decode_functions(front.hello.functions)] == [
        "echo",
        "builtin_echo",
        "builtin_healthy",
    ]


def test_every_worker_has_an_id_of_its_own(front: Front, other_front: Front) -> None:
    workers = [front.fork(), front.fork(), other_front.fork()]
    assert len({name for name, _ in workers}) == 3
    for _, pidfd in workers:
        os.close(pidfd)


def test_a_worker_is_killed_by_its_id_and_its_end_reported(front: Front) -> None:
    (killed, its_end), (_, another) = front.fork(), front.fork()
    front.send(Kill(killed))
    assert front.expect(Exited) == Exited(killed, -signal.SIGKILL)
    assert ends(its_end)
    assert lives(another)
    os.close(another)


def test_an_unknown_worker_and_that_of_another_front_cannot_be_killed(front: Front, other_front: Front) -> None:
    worker, pidfd = front.fork()
    for name in (worker, "gone-1"):
        other_front.send(Kill(name))
        other_front.send(Claim([name]))
    assert other_front.expect(Exited) == Exited("gone-1", None)
    other_front.send(Measure(1, [worker]))
    assert other_front.expect(Measured) == Measured(1, {})
    assert lives(pidfd)
    os.close(pidfd)


def test_memory_and_processor_time_are_told_of_those_that_live(front: Front) -> None:
    worker, pidfd = front.fork()
    os.close(pidfd)
    front.send(Measure(5, [worker, "gone-1"]))
    measured = front.expect(Measured)
    assert (measured.request, list(measured.usage)) == (5, [worker])
    usage = WorkerUsage(*measured.usage[worker])
    assert usage.memory_bytes > 1024 * 1024
    assert usage.processor_mark
    # Most of its memory is the zygote's image.
    assert usage.own_bytes < usage.memory_bytes / 2
    assert usage.processes == 1
    assert usage.processor_seconds >= 0
    assert usage.threads == 1
    assert usage.container_bytes is not None
    assert usage.container_bytes > usage.own_bytes


def test_a_worker_is_stopped_and_continued_by_its_own_front_alone(front: Front, other_front: Front) -> None:
    worker, pidfd = front.fork()
    other_front.send(Stop(worker))
    # This answer proves that the zygote has read the other front's earlier packet.
    other_front.send(Measure(1, []))
    other_front.expect(Measured)
    assert not is_stopped(pidfd)
    front.send(Stop(worker))
    front.send(Measure(1, [worker]))
    assert list(front.expect(Measured).usage) == [worker]
    until(lambda: is_stopped(pidfd))
    front.send(Continue(worker))
    until(lambda: not is_stopped(pidfd))
    os.close(pidfd)


def test_a_stopped_worker_that_somebody_else_continues_is_stopped_again_and_reported(front: Front) -> None:
    (stopped, pidfd), (continued, others) = front.fork(), front.fork()
    for worker in (stopped, continued):
        front.send(Stop(worker))
        front.send(Measure(1, [worker]))
        front.expect(Measured)
    front.send(Continue(continued))
    until(lambda: is_stopped(pidfd))
    signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    assert front.expect(WentOn) == WentOn(stopped)
    until(lambda: is_stopped(pidfd))
    assert not is_stopped(others)
    for each in (pidfd, others):
        os.close(each)


def test_a_stopped_worker_ends_when_it_is_killed_and_with_its_front(zygotes: Zygotes) -> None:
    going = Front(zygotes.connection())
    (killed, its_end), (left, its_front_leaves) = going.fork(), going.fork()
    for worker, pidfd in ((killed, its_end), (left, its_front_leaves)):
        going.send(Stop(worker))
        until(lambda pidfd=pidfd: is_stopped(pidfd))  # type: ignore[misc]
    going.send(Kill(killed))
    assert going.expect(Exited) == Exited(killed, -signal.SIGKILL)
    assert ends(its_end)
    going.hang_up()
    assert ends(its_front_leaves)
    going.close()


@pytest.mark.parametrize("goodbye", [b"", b"not a packet"])
def test_a_front_that_goes_takes_its_workers_with_it_and_no_others(
    zygotes: Zygotes, front: Front, goodbye: bytes
) -> None:
    going = Front(zygotes.connection())
    (_, kept), (_, lost) = front.fork(), going.fork()
    if goodbye:
        going._socket.send(goodbye)
    else:
        going.hang_up()
    assert ends(lost)
    assert lives(kept)
    os.close(kept)
    going.close()


def test_a_successor_keeps_the_workers_that_are_claimed_and_ends_the_others(zygotes: Zygotes, front: Front) -> None:
    (claimed, kept), (_, unclaimed), (gone, ended) = front.fork(), front.fork(), front.fork()
    front.send(Kill(gone))
    assert front.expect(Exited).worker == gone
    assert ends(ended)
    front.send(Stop(claimed))
    until(lambda: is_stopped(kept))
    zygotes.restart()
    # The zygote continues workers on its own, because no front can ask for it yet.
    until(lambda: not is_stopped(kept))
    successor = Front(zygotes.connection())
    successor.send(Claim([claimed, gone]))
    assert successor.expect(Exited) == Exited(gone, None)
    assert ends(unclaimed)
    successor.send(Measure(1, [claimed]))
    assert list(successor.expect(Measured).usage) == [claimed]
    assert lives(kept)
    successor.send(Kill(claimed))
    # The worker is not its child, so its exit status is unknown here.
    assert successor.expect(Exited) == Exited(claimed, None)
    assert ends(kept)
    successor.close()


def test_a_zygote_that_is_followed_keeps_its_workers_until_they_end(tmp_path: Path) -> None:
    first = Zygotes(tmp_path, WorkerSettings())
    front = Front(first.connection())
    (name, kept), (_, forgotten) = front.fork(), front.fork()
    front.send(Measure(1, [name]))
    front.expect(Measured)
    following = Zygotes(tmp_path, WorkerSettings(), generation=1, is_successor=True)
    followers_front = Front(following.connection())
    assert (front.hello.generation, followers_front.hello.generation) == (0, 1)
    # The first zygote's workers stay untouched until it has retired.
    assert lives(kept)
    assert lives(forgotten)
    retired = os.pidfd_open(first.process.pid)
    first.retire()
    followers_front.send(Claim([name]))
    assert ends(forgotten)
    followers_front.send(Measure(1, [name]))
    assert list(followers_front.expect(Measured).usage) == [name]
    assert lives(retired)
    followers_front.send(Kill(name))
    assert followers_front.expect(Exited) == Exited(name, None)
    assert ends(kept)
    assert ends(retired)
    front.close()
    followers_front.close()
    following.stop()
    first.stop()


def test_a_stopped_worker_of_a_zygote_that_is_followed_does_not_outlive_a_front_that_claims_nothing(
    tmp_path: Path,
) -> None:
    first = Zygotes(tmp_path, WorkerSettings())
    front = Front(first.connection())
    worker, pidfd = front.fork()
    front.send(Stop(worker))
    until(lambda: is_stopped(pidfd))
    following = Zygotes(tmp_path, WorkerSettings(), generation=1, is_successor=True)
    retired = os.pidfd_open(first.process.pid)
    first.retire()
    front.expect(Retired)
    # The successor was killed before it could claim anything.
    front.close()
    assert ends(pidfd)
    assert ends(retired)
    following.stop()
    first.stop()


def test_a_zygote_that_is_followed_does_not_wait_for_workers_of_the_one_before_it(tmp_path: Path) -> None:
    first = Zygotes(tmp_path, WorkerSettings())
    front = Front(first.connection())
    name, kept = front.fork()
    second = Zygotes(tmp_path, WorkerSettings(), generation=1, is_successor=True)
    seconds_front = Front(second.connection())
    first.retire()
    seconds_front.send(Claim([name]))
    seconds_front.send(Measure(1, [name]))
    assert list(seconds_front.expect(Measured).usage) == [name]
    third = Zygotes(tmp_path, WorkerSettings(), generation=2, is_successor=True)
    thirds_front = Front(third.connection())
    retired = os.pidfd_open(second.process.pid)
    second.retire()
    assert ends(retired)
    assert lives(kept)
    thirds_front.send(Claim([name]))
    thirds_front.send(Kill(name))
    assert thirds_front.expect(Exited) == Exited(name, None)
    assert ends(kept)
    for each in (front, seconds_front, thirds_front):
        each.close()
    for zygote in (third, second, first):
        zygote.stop()
