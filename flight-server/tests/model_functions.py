# SPDX-License-Identifier: Apache-2.0
"""Batched functions that the tests' pools are started with. Workers and test meet in files of a directory."""

import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from batched import Batched, Model, add

from updraft.functions import Batching
from updraft_server.worker.registered.functions import registry


def doubled(numbers: pa.Array) -> pa.Array:
    return pc.multiply(numbers, 2)


def pid(numbers: pa.Array) -> pa.Array:
    return pa.array([os.getpid()] * len(numbers), pa.int64())


def batch_rows(numbers: pa.Array) -> pa.Array:
    return pa.array([len(numbers)] * len(numbers), pa.int64())


def picky(numbers: pa.Array) -> pa.Array:
    if 13 in numbers.to_pylist():
        raise ValueError("13 is not liked")
    return numbers


def deadly(numbers: pa.Array) -> pa.Array:
    if 13 in numbers.to_pylist():
        os.kill(os.getpid(), signal.SIGSEGV)
    return numbers


def hanging(numbers: pa.Array) -> pa.Array:
    while 13 in numbers.to_pylist():
        time.sleep(60)
    return numbers


add("doubled", doubled)
add("pid", pid)
add("batch_rows", batch_rows, rows=100, wait_seconds=3600)
add("large_batches", batch_rows, rows=1024, wait_seconds=3600)
add("picky", picky, wait_seconds=3600)
add("deadly", deadly, wait_seconds=3600)
add("hanging", hanging, timeout_seconds=2, wait_seconds=3600)


kept: list[bytearray] = []


def greedy(numbers: pa.Array) -> pa.Array:
    kept.append(bytearray(200 << 20))
    time.sleep(600)
    return numbers


def status_of_the_process(numbers: pa.Array) -> pa.Array:
    """Seccomp and NoNewPrivs of /proc/self/status, and whether it may write where its temporary files go."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    with tempfile.TemporaryFile() as file:
        written = file.write(b"1")
    return pa.array([int(fields["Seccomp"]), int(fields["NoNewPrivs"]), written], pa.int64())


def sockets(numbers: pa.Array) -> pa.Array:
    """1 where this process may make one, 0 where it may not."""
    try:
        socket.socket().close()
    except PermissionError:
        return pa.array([0] * len(numbers), pa.int64())
    return pa.array([1] * len(numbers), pa.int64())


def without_weights() -> Model:
    raise FileNotFoundError("no weights")


def loaded_at_the_second_attempt() -> Model:
    mark = Path.home() / "was-loaded"
    if not mark.exists():
        mark.touch()
        raise FileNotFoundError("no weights yet")
    return Model(doubled)


def large() -> Model:
    kept.append(bytearray(b"x") * (60 << 20))
    return Model(pid)


def never() -> Model:
    time.sleep(600)
    raise AssertionError


def talkative() -> Model:
    sys.stdout.write("loading weights\n")
    return Model(doubled)


add("greedy", greedy)
add("status", status_of_the_process)
add("free", sockets)
add("restricted", sockets)
add("replicated", pid, replicas=2)
registry.add(Batched("never", never, Batching(load_timeout_seconds=0.5)))  # type: ignore[arg-type]
for name, load in {
    "without_weights": without_weights,
    "second_attempt": loaded_at_the_second_attempt,
    "large_a": large,
    "large_b": large,
    "talkative": talkative,
}.items():
    registry.add(Batched(name, load, Batching(wait_seconds=0.001)))  # type: ignore[arg-type]
