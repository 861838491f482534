# SPDX-License-Identifier: Apache-2.0
"""Writer as users start it, in a process whose system calls a test makes fail (`faults/failing_calls.c`)."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import flight
from running_writer import WITHIN_SECONDS, wait_for
from tests.support.constants import NOTHING, with_constants

from updraft.client.writer import WriterClient
from updraft.v1.write_pb2 import Codec, Compression, ParquetOptions, Receipt

COMMAND = [sys.executable, "-c", "from updraft_writer.cli import main; main()"]
# Several row groups, so that some writes come before the last.
_TABLE = pa.table({"n": pa.arange(0, 100_000, 1)})
_BATCHES = 4
_OPTIONS = ParquetOptions(row_group_bytes=1 << 17, compression=Compression(codec=Codec.CODEC_NONE))
ROWS = _BATCHES * _TABLE.num_rows
_SOURCES = Path(__file__).parent / "faults"


class Fault(NamedTuple):
    """Calls that fail; see failing_calls.c.

    `needle` is in their path, at its end if it ends with `$`. The first `skip` calls work, and so do all calls after
    the next `times` (0: none).
    """

    call: str
    needle: str
    error: int
    effect: str = "undone"
    skip: int = 0
    times: int = 0

    def __str__(self) -> str:
        return f"{self.call} {self.error} {self.effect} {self.skip} {self.times} {self.needle}"


def build_library(name: str, directory: Path) -> Path:
    """Compile faults/NAME.c; skip the test if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc): nothing makes system calls fail")
    library = directory / f"{name}.so"
    options = ["-shared", "-fPIC", "-O2", "-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *options, "-o", library, _SOURCES / f"{name}.c"], check=True)
    return library


class WriterProcess:
    """Running writer; `root` is the directory of its files on this machine."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: str, root: Path, control: Path) -> None:
        self.process = process
        self.address = address
        self.root = root
        self.log = control / "log"
        self._rules = control / "rules"
        self._calls = control / "calls"
        self._numbers = itertools.count(1)

    def fail(self, *faults: Fault) -> None:
        """Make only these calls fail from now on, and forget the calls so far."""
        self._calls.unlink(missing_ok=True)
        new = self._rules.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in (next(self._numbers), *faults)))
        new.replace(self._rules)

    def calls(self) -> list[tuple[str, Path]]:
        """Return the calls below the root since the last `fail`, in order."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [(call, Path(path)) for call, _, path in (line.partition(" ") for line in lines)]

    def client(self) -> WriterClient:
        return WriterClient(self.address, timeout_seconds=WITHIN_SECONDS)

    def files(self) -> list[str]:
        """Return all files below the root, including hidden ones."""
        return sorted(path.name for path in self.root.rglob("*") if path.is_file())

    def status(self) -> dict[str, Any]:
        with flight.connect(f"grpc://{self.address}") as client:
            [status] = client.do_action("updraft.writer_status")
        found: dict[str, Any] = json.loads(status.body.to_pybytes())
        return found

    def becomes_empty(self) -> None:
        """Wait until nothing is held and no file is open."""
        names = ("held_bytes", "reservations", "open_files")
        wait_for(lambda: not any(self.status()[name] for name in names), "the release of everything")

    def is_left_empty(self) -> None:
        """Check at the end of a test that it has left nothing."""
        self.fail()
        self.becomes_empty()
        assert [name for name in self.files() if name.endswith(".updraft")] == []


def write(writer: WriterProcess, name: str = "part.parquet", *, root: str = "") -> Receipt:
    """Write a file of many pieces; `root` is the client's name for the writer's root."""
    with writer.client() as client:
        with client.create(f"{root or writer.root}/{name}", _TABLE.schema, _OPTIONS) as file:
            for _ in range(_BATCHES):
                file.write(_TABLE)
        return file.receipt


def rows(path: Path) -> int:
    """Return the number of rows of a file."""
    return int(pq.read_metadata(path).num_rows)


THREE_ATTEMPTS = {"updraft_writer.sinks.stored.STORE_ATTEMPTS": 3}


@contextmanager
def writer_process(
    directory: Path,
    library: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    constants: Mapping[str, object] = NOTHING,
) -> Iterator[WriterProcess]:
    """Run a writer whose calls below `directory`/data can be made to fail; `options` may name another root."""
    root, control = directory / "data", directory / "control"
    root.mkdir(parents=True)
    control.mkdir()
    ready = control / "ready.json"
    command = [str(Path(sys.executable).with_name("updraft-writer")), "serve", "--listen", "127.0.0.1:0"]
    command += ["--admin-listen=", "--metrics-listen=", "--ready-file", str(ready)]
    command += options or ("--root", str(root))
    preloaded = {
        "LD_PRELOAD": str(library),
        "FAILING_CALLS": str(control / "rules"),
        "FAILING_CALLS_LOG": str(control / "calls"),
        "FAILING_CALLS_ROOT": str(root),
    }
    with (control / "log").open("wb") as log:
        variables = with_constants(control, constants, {**os.environ, **preloaded, **(environment or {})})
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None, "the start of the writer")
        assert process.poll() is None, (control / "log").read_text()
        writer = WriterProcess(process, json.loads(ready.read_text())["listen"], root, control)
        writer.fail()
        yield writer
    finally:
        process.terminate()
        process.wait(WITHIN_SECONDS)
