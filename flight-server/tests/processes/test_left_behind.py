# SPDX-License-Identifier: Apache-2.0
"""Pools whose functions start processes that leave their parents, their group and their session."""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from other_processes import eventually, lives
from pyarrow import flight
from served_pool import HANG_SECONDS, SCHEMA, Server, batch, finish

FUNCTIONS = """
import ctypes
import multiprocessing
import os
import subprocess
import time
import pyarrow as pa
from updraft import function

# The test's directory; a worker has one of its own.
DIRECTORY = os.environ["TMPDIR"]

def note():
    with open(DIRECTORY + f"/{os.getpid()}.started", "w"):
        pass

def daemon():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            note()
            os.close(writing)
            time.sleep(1000)
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    os.read(reading, 1)
    os.close(reading)

@function
def daemons(batch: pa.RecordBatch) -> pa.RecordBatch:
    daemon()
    daemon()
    return batch

@function
def disowned(batch: pa.RecordBatch) -> pa.RecordBatch:
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    daemon()
    return batch

@function
def cascade(batch: pa.RecordBatch) -> pa.RecordBatch:
    # Each of a line of daemons comes up only when the one before it has ended.
    if os.fork() == 0:
        for _ in range(5):
            os.setsid()
            note()
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                os._exit(0)
        time.sleep(1000)
    while len([name for name in os.listdir(DIRECTORY) if name.endswith(".started")]) < 5:
        time.sleep(0.01)
    return batch

@function
def unheard(batch: pa.RecordBatch) -> pa.RecordBatch:
    # A child whose end sends no signal: waitpid shows it to those only that ask for all kinds of children.
    SYS_CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    if ctypes.CDLL(None).syscall(SYS_CLONE, 0, 0, 0, 0, 0) == 0:
        note()
        time.sleep(1000)
    while not [name for name in os.listdir(DIRECTORY) if name.endswith(".started")]:
        time.sleep(0.01)
    return batch

POOLS = []

def start_a_program():
    program = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open(DIRECTORY + f"/{program.pid}.started", "w"):
        pass

@function
def multiprocess(batch: pa.RecordBatch) -> pa.RecordBatch:
    POOLS.append(multiprocessing.get_context("fork").Pool(2, start_a_program))
    POOLS[-1].map(abs, range(10))
    return batch
"""


class Leaving:
    """Pool with such functions."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.seen: list[psutil.Process] = []
        self.server = Server(directory, "--workers=1", "--functions=leaving_functions")

    def call(self, client: flight.FlightClient, function: str) -> tuple[Any, Any]:
        """Start an exchange whose function has started its processes; it stays open while its halves are referenced."""
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(function))
        writer.begin(SCHEMA)
        writer.write_batch(batch(1))
        assert reader.read_chunk().data == batch(1)
        return writer, reader

    def started(self) -> list[psutil.Process]:
        """Return the processes that the function has started, all alive."""
        processes = self.noted()
        assert processes
        assert all(map(lives, processes))
        return processes

    def noted(self) -> list[psutil.Process]:
        """Return the processes that the function has started, which may be ending."""
        for note in self._directory.glob("*.started"):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.seen.append(psutil.Process(int(note.stem)))
        return self.seen


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leaving]:
    # Unlike pytest's, short enough for the path of a Unix socket.
    directory = Path(tempfile.mkdtemp(prefix="updraft-left-"))
    (directory / "leaving_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    leaving = Leaving(directory)
    yield leaving
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(leaving.server.process.pid).children(recursive=True)
    leaving.server.process.kill()
    leaving.server.process.wait()
    # If a test failed, its processes are left to be killed here.
    for process in filter(lives, leaving.seen):
        process.kill()
    # Until they end, they may write to the directory.
    eventually(lambda: not any(map(lives, family)))
    shutil.rmtree(directory)


@pytest.mark.parametrize("function", ["daemons", "disowned", "cascade", "unheard", "multiprocess"])
def test_what_a_function_has_started_ends_with_its_exchange(pool: Leaving, function: str) -> None:
    with pool.server.client() as client:
        writer, reader = pool.call(client, function)
        started = pool.noted()
        assert finish(writer, reader) == "OK"
        assert not any(map(lives, started))
    assert pool.server.stop() == 0


@pytest.mark.parametrize("victim", ["worker", "front"])
def test_daemons_end_with_the_worker_and_with_the_front(pool: Leaving, victim: str) -> None:
    with pool.server.client() as client:
        open_exchange = pool.call(client, "daemons")
        started = pool.started()
        ready = pool.server.ready()
        os.kill(next(iter(ready["workers"].values())) if victim == "worker" else ready["front"], signal.SIGKILL)
        eventually(lambda: not any(map(lives, started)))
        del open_exchange


@pytest.mark.parametrize("ending", ["of the exchange", "of the worker"])
def test_daemons_of_a_worker_that_outlived_its_zygote_end_with_their_exchange(pool: Leaving, ending: str) -> None:
    with pool.server.client() as client:
        writer, reader = pool.call(client, "daemons")
        started = pool.started()
        ready = pool.server.ready()
        os.kill(ready["zygote"], signal.SIGKILL)
        pool.server.wait_for(lambda: pool.server.ready()["zygote"] != ready["zygote"])
        # The end of a zygote does not end the exchange.
        assert all(map(lives, started))
        if ending == "of the exchange":
            assert finish(writer, reader) == "OK"
        else:
            os.kill(next(iter(ready["workers"].values())), signal.SIGKILL)
        eventually(lambda: not any(map(lives, started)))


def test_daemons_end_with_a_pool_whose_supervisor_is_killed(pool: Leaving) -> None:
    with pool.server.client() as client:
        open_exchange = pool.call(client, "daemons")
        started = [*pool.started(), *psutil.Process(pool.server.process.pid).children(recursive=True)]
        pool.server.process.kill()
        pool.server.process.wait()
        eventually(lambda: not any(map(lives, started)))
        del open_exchange


def test_a_zygote_that_is_stopped_still_ends_all_that_is_left_of_a_killed_supervisor(pool: Leaving) -> None:
    with pool.server.client() as client:
        open_exchange = pool.call(client, "daemons")
        started = pool.started()
        os.kill(pool.server.ready()["zygote"], signal.SIGSTOP)
        pool.server.process.kill()
        pool.server.process.wait()
        eventually(lambda: not any(map(lives, started)))
        del open_exchange


def test_daemons_end_with_a_pool_that_is_told_to_end(pool: Leaving) -> None:
    with pool.server.client() as client:
        writer, reader = pool.call(client, "daemons")
        started = pool.started()
        pool.server.process.terminate()
        assert finish(writer, reader) == "OK"
    assert pool.server.process.wait(HANG_SECONDS) == 0
    assert not any(map(lives, started))
