# SPDX-License-Identifier: Apache-2.0
"""Batched functions that the tests' pools are started with. Workers and test meet in files of a directory."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow, Batching

# Tests that want several exchanges in a batch make them wait for each other.
TOGETHER = 3600

kept: list[bytearray] = []
alarms: list[int] = []


def pids(rows: int) -> pa.Array:
    return pa.array([os.getpid()] * rows, pa.int64())


@function(batching=Batching())
def doubled(number: Arrow[int]) -> Arrow[int]:
    return pc.multiply(number, 2)


@function(batching=Batching())
def pid(number: Arrow[int]) -> Arrow[int]:
    return pids(len(number))


@function(batching=Batching(replicas=2))
def replicated(number: Arrow[int]) -> Arrow[int]:
    return pids(len(number))


@function(batching=Batching(rows=100, wait_seconds=TOGETHER))
def batch_rows(number: Arrow[int]) -> Arrow[int]:
    return pa.array([len(number)] * len(number), pa.int64())


@function(batching=Batching(rows=1024, wait_seconds=TOGETHER))
def large_batches(number: Arrow[int]) -> Arrow[int]:
    return pa.array([len(number)] * len(number), pa.int64())


@function(batching=Batching(wait_seconds=TOGETHER))
def picky(number: Arrow[int]) -> Arrow[int]:
    if 13 in number.to_pylist():
        raise ValueError("13 is not liked")
    return number


@function(batching=Batching(wait_seconds=TOGETHER), on_error="null")
def lenient(number: int) -> int:
    if number == 13:
        raise ValueError("13 is not liked")
    return number


@function(batching=Batching(wait_seconds=TOGETHER))
def too_short(number: Arrow[int]) -> Arrow[int]:
    return number.slice(1)


@function(batching=Batching(wait_seconds=TOGETHER))
def deadly(number: Arrow[int]) -> Arrow[int]:
    if 13 in number.to_pylist():
        os.kill(os.getpid(), signal.SIGSEGV)
    return number


@function(batching=Batching(wait_seconds=TOGETHER), deterministic=False)
def deadly_once(number: Arrow[int]) -> Arrow[int]:
    if 13 in number.to_pylist():
        os.kill(os.getpid(), signal.SIGSEGV)
    return number


@function(batching=Batching(timeout_seconds=2, wait_seconds=TOGETHER))
def hanging(number: Arrow[int]) -> Arrow[int]:
    while 13 in number.to_pylist():
        time.sleep(60)
    return number


@function(batching=Batching())
def patient(number: Arrow[int]) -> Arrow[int]:
    Path.home().joinpath("works").touch()
    while not Path.home().joinpath("go-on").exists():
        time.sleep(0.01)
    return number


@function(batching=Batching(timeout_seconds=2, wait_seconds=TOGETHER))
def stopping(number: Arrow[int]) -> Arrow[int]:
    if 13 in number.to_pylist():
        os.kill(os.getpid(), signal.SIGSTOP)
    return number


@function(batching=Batching(timeout_seconds=0, wait_seconds=TOGETHER))
def another_program(number: Arrow[int]) -> Arrow[int]:
    if 13 in number.to_pylist():
        os.execvp("sleep", ["sleep", "600"])
    return number


@function(batching=Batching())
def alarming(number: Arrow[int]) -> Arrow[int]:
    """Has a timer of its own, which goes off behind the call that has set it."""
    signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
    if not any(signal.getitimer(signal.ITIMER_REAL)):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    return pa.array([len(alarms)] * len(number), pa.int64())


@function(batching=Batching())
def forking(number: Arrow[int]) -> Arrow[int]:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return number if child else pc.negate(number)


@function(name="forked_as_loaded", batching=Batching())
class ForkedAsLoaded:
    def __init__(self) -> None:
        os.fork()

    def __call__(self, number: Arrow[int]) -> Arrow[int]:
        return pids(len(number))


@function(batching=Batching())
def careless(number: Arrow[int]) -> Arrow[int]:
    """Closes the connection that was made first."""
    os.close(6)
    return number


@function(batching=Batching())
def greedy(number: Arrow[int]) -> Arrow[int]:
    kept.append(bytearray(200 << 20))
    time.sleep(600)
    return number


def _wasteful(take: Callable[[], object]) -> Any:
    """Takes more than a few of something until its process is ended."""

    @function(name=take.__name__, batching=Batching())
    def wastes(number: Arrow[int]) -> Arrow[int]:
        take()
        time.sleep(600)
        return number

    return wastes


def many_processes() -> None:
    for _ in range(10):
        subprocess.Popen(["sleep", "600"])


def many_threads() -> None:
    for _ in range(100):
        threading.Thread(target=time.sleep, args=[600], daemon=True).start()


def many_bytes() -> None:
    Path(tempfile.gettempdir(), "large").write_bytes(b"x" * (2 << 20))


def many_files() -> None:
    for name in range(30):
        Path(tempfile.gettempdir(), f"file-{name}").touch()


def much_time() -> None:
    while True:
        pass


_takes = (many_processes, many_threads, many_bytes, many_files, much_time)
takes_processes, takes_threads, takes_bytes, takes_files, takes_time = map(_wasteful, _takes)


@function(batching=Batching())
def status(number: Arrow[int]) -> Arrow[int]:
    """Seccomp and NoNewPrivs of /proc/self/status, whether others may read its memory (PR_GET_DUMPABLE), and whether it
    may write where its temporary files go."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    with tempfile.TemporaryFile() as file:
        written = file.write(b"1")
    dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
    return pa.array([int(fields["Seccomp"]), int(fields["NoNewPrivs"]), dumpable, written], pa.int64())


def sockets(rows: int) -> pa.Array:
    """1 where this process may make one, 0 where it may not."""
    try:
        socket.socket().close()
    except PermissionError:
        return pa.array([0] * rows, pa.int64())
    return pa.array([1] * rows, pa.int64())


@function(batching=Batching())
def free(number: Arrow[int]) -> Arrow[int]:
    return sockets(len(number))


@function(batching=Batching())
def restricted(number: Arrow[int]) -> Arrow[int]:
    return sockets(len(number))


@function(name="without_weights", batching=Batching())
class WithoutWeights:
    def __init__(self) -> None:
        raise FileNotFoundError("no weights")

    def __call__(self, number: Arrow[int]) -> Arrow[int]:
        return number


@function(name="second_attempt", batching=Batching())
class SecondAttempt:
    def __init__(self) -> None:
        mark = Path.home() / "was-loaded"
        if not mark.exists():
            mark.touch()
            raise FileNotFoundError("no weights yet")

    def __call__(self, number: Arrow[int]) -> Arrow[int]:
        return pc.multiply(number, 2)


class _Large:
    def __init__(self) -> None:
        self._weights = bytearray(b"x") * (60 << 20)

    def __call__(self, number: Arrow[int]) -> Arrow[int]:
        return pids(len(number))


large_a = function(name="large_a", batching=Batching(wait_seconds=0.001))(_Large)
large_b = function(name="large_b", batching=Batching(wait_seconds=0.001))(_Large)


@function(name="never", batching=Batching(load_timeout_seconds=0.5))
class Never:
    def __init__(self) -> None:
        time.sleep(600)

    def __call__(self, number: Arrow[int]) -> Arrow[int]:
        return number


@function(name="talkative", batching=Batching())
class Talkative:
    def __init__(self) -> None:
        sys.stdout.write("loading weights\n")

    def warm_up(self) -> None:
        sys.stdout.write("warming up\n")

    def __call__(self, number: Arrow[int]) -> Arrow[int]:
        return number


@function(name="warmed", batching=Batching())
class Warmed:
    def __init__(self) -> None:
        self._times_warmed = 0

    def warm_up(self) -> None:
        self._times_warmed += 1

    def __call__(self, number: Arrow[int]) -> Arrow[int]:
        return pa.array([self._times_warmed] * len(number), pa.int64())
