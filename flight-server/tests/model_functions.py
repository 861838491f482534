# SPDX-License-Identifier: Apache-2.0
"""Batched functions that the tests' pools are started with. Workers and test meet in files of a directory."""

import dataclasses
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from updraft.errors import UserError
from updraft.functions import Batching
from updraft_server.worker.registered.functions import registry

NUMBERS = pa.schema([pa.field("number", pa.int64())])
RESULTS = pa.schema([pa.field("result", pa.int64())])


class Model:
    def __init__(self, call: Callable[[pa.Array], pa.Array]) -> None:
        self._call = call

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._call(batch.column(0))], schema=RESULTS)

    def alone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return self.joined(batch)
        except ValueError as error:
            raise UserError(str(error), exception_class="ValueError") from error

    def warm_up(self) -> None:
        return


@dataclasses.dataclass(frozen=True)
class Batched:
    name: str
    load: Callable[[], Model]
    batching: Batching
    version: str = "1"
    doc: str = "A model."
    argument_schema: pa.Schema = NUMBERS
    result_schema: pa.Schema = RESULTS


def add(name: str, call: Callable[[pa.Array], pa.Array], **batching: Any) -> None:
    registry.add(Batched(name, lambda: Model(call), Batching(**batching)))  # type: ignore[arg-type]


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


def talkative() -> Model:
    sys.stdout.write("loading weights\n")
    return Model(doubled)


add("greedy", greedy)
add("status", status_of_the_process)
for name, load in {
    "without_weights": without_weights,
    "second_attempt": loaded_at_the_second_attempt,
    "large_a": large,
    "large_b": large,
    "talkative": talkative,
}.items():
    registry.add(Batched(name, load, Batching(wait_seconds=0.001)))  # type: ignore[arg-type]
