# SPDX-License-Identifier: Apache-2.0
"""Scratch directories of a zygote's workers, seen from outside."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_processes import eventually
from pool_driver import Zygotes
from zygote_fronts import Front, ends

from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import Claim, Exited, Kill, Measure, Measured


@pytest.fixture
def zygotes(tmp_path: Path) -> Iterator[Zygotes]:
    (tmp_path / "scratch" / "of-a-killed-pool" / "inner").mkdir(parents=True)
    started = Zygotes(tmp_path, WorkerSettings())
    yield started
    started.stop()


@pytest.fixture
def front(zygotes: Zygotes) -> Iterator[Front]:
    connected = Front(zygotes.connection())
    yield connected
    connected.close()


def kill(front: Front, worker: str) -> None:
    front.send(Kill(worker))
    assert front.expect(Exited).worker == worker


def left(zygotes: Zygotes) -> list[str]:
    """Return the entries of the scratch directory, including its trash."""
    trash = zygotes.scratch / ".trash"
    removing = list(trash.iterdir()) if trash.exists() else []
    return [path.name for path in [*removing, *zygotes.scratch.iterdir()] if path != trash]


def test_a_worker_has_a_directory_of_its_own_while_it_lives(zygotes: Zygotes, front: Front) -> None:
    (first, _), (second, _) = front.fork(), front.fork()
    for worker in (first, second):
        assert not list((zygotes.scratch / worker).iterdir())
        assert (zygotes.scratch / worker).stat().st_mode & 0o777 == 0o700
    kill(front, first)
    eventually(lambda: left(zygotes) == [second])


def test_a_tree_that_resists_goes_as_well_and_nothing_waits_for_it(zygotes: Zygotes, front: Front) -> None:
    worker, _ = front.fork()
    elsewhere = zygotes.scratch.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    own = zygotes.scratch / worker
    directory = os.open(own, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("nested", dir_fd=directory)
        inner = os.open("nested", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)
    (own / "closed" / "inner").mkdir(parents=True)
    (own / "closed").chmod(0)
    (own / "link").symlink_to(elsewhere)
    own.chmod(0)
    kill(front, worker)
    # Removed in the same turn as its end, or soon after.
    front.send(Measure(1, []))
    front.expect(Measured)
    eventually(lambda: not left(zygotes))
    assert (elsewhere / "kept").exists()


def test_what_a_killed_pool_has_left_is_removed_at_the_start(zygotes: Zygotes, front: Front) -> None:
    eventually(lambda: not left(zygotes))


def test_workers_that_outlive_their_zygote_keep_their_directories(zygotes: Zygotes, front: Front) -> None:
    (kept, _), (gone, ended) = front.fork(), front.fork()
    for worker in (kept, gone):
        (zygotes.scratch / worker / "file").touch()
    zygotes.restart()
    successor = Front(zygotes.connection())
    successor.send(Claim([kept, gone]))
    successor.send(Kill(gone))
    assert successor.expect(Exited).worker == gone
    assert ends(ended)
    eventually(lambda: left(zygotes) == [kept])
    assert (zygotes.scratch / kept / "file").exists()
    successor.close()


def test_many_ends_at_once_leave_nothing(zygotes: Zygotes, front: Front) -> None:
    workers = [front.fork()[0] for _ in range(8)]
    for worker in workers:
        (zygotes.scratch / worker / "file").touch()
        front.send(Kill(worker))
    assert {front.expect(Exited).worker for _ in workers} == set(workers)
    eventually(lambda: not left(zygotes))


def test_what_lies_in_a_scratch_directory_is_measured_as_long_as_it_is_there(zygotes: Zygotes, front: Front) -> None:
    (worker, _), (another, _) = front.fork(), front.fork()

    def files_of(name: str) -> int:
        front.send(Measure(1, [name]))
        return WorkerUsage(*front.expect(Measured).usage[name]).scratch_files

    assert files_of(worker) == 0
    own = zygotes.scratch / worker
    (own / "directory").mkdir()
    (own / "directory" / "file").write_bytes(b"x" * 100_000)
    eventually(lambda: files_of(worker) == 2)
    assert files_of(another) == 0
    (own / "directory" / "file").unlink()
    (own / "directory").rmdir()
    eventually(lambda: files_of(worker) == 0)
    (zygotes.scratch / another / "file").touch()
    eventually(lambda: files_of(another) == 1)
