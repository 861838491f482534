# SPDX-License-Identifier: Apache-2.0
"""Writer to which a fault happens, and the conditions that must hold for it and its files afterwards."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from writer_process import Fault as FailingCall
from writer_process import build_library

from tests.faults.table.state import MEMORY_TOLERANCE_BYTES
from tests.support.waiting import HANG_SECONDS, until
from tests.support.writer import LocalWriter, with_receivers
from updraft.client.remote_file import RemoteFile
from updraft.client.writer import WriterClient
from updraft.errors import UpdraftError
from updraft.v1.write_pb2 import Codec, Compression, ParquetOptions

# Random numbers, which no encoding makes smaller.
TABLE = pa.table({"n": np.random.default_rng(0).integers(-(2**62), 2**62, 100_000)})
_BATCHES = 4
# Make several row groups, so that the writer stores some bytes before the file ends.
_OPTIONS = ParquetOptions(row_group_bytes=1 << 17, compression=Compression(codec=Codec.CODEC_NONE))
_GOOD_FILES = 3


@dataclass(frozen=True)
class WriterFault:
    """Row whose `happens` causes the fault and raises the error that the client of a file sees."""

    name: str
    happens: Callable[[WriterScene], None]
    client: type[UpdraftError] | None = None
    """Error that the client receives; None if the client receives its receipt or no file was open."""
    published: bool | None = None
    """Whether the file exists afterwards; None if there was no file or both outcomes are allowed."""
    unfinished: int = 0
    """Number of hidden files that remain: a killed writer cannot remove its unfinished file."""
    starts_again: bool = False
    """Whether the whole writer ends, so that its platform starts it again."""
    heals: bool = False
    """Whether the process that clients connect to ends, so that the writer replaces it."""
    receivers: int = 0
    """Number of receivers; with 0, the process that encodes also receives."""
    place: Callable[[Path], AbstractContextManager[Any]] = nullcontext
    """Context manager for the environment of the writer's root."""
    needs: Callable[[], str] = str
    """Function that returns why this machine cannot produce the fault; empty if it can."""


@dataclass(frozen=True)
class _Held:
    descriptors: int
    resident_bytes: int
    processes: int


class WriterScene:
    """Writer that has written three good files, and whose system calls can fail; a context manager."""

    def __init__(self, directory: Path, fault: WriterFault) -> None:
        # Use no directory of pytest, because a test may mount a small disk over this directory.
        self._directory = Path(tempfile.mkdtemp(prefix="updraft-faults-"))
        self.root = self._directory / "data"
        self.place: Any = None
        """Environment that the fault's `place` made."""
        self._rules = self._directory / "rules"
        self._numbers = itertools.count(1)
        self._names = itertools.count(1)
        self._make_place = fault.place
        self._unfinished = fault.unfinished
        self._library_directory = directory
        self._cleared = contextlib.ExitStack()
        constants = {"updraft_writer.sinks.stored.STORE_ATTEMPTS": 3, **with_receivers(fault.receivers)}
        self.writer = LocalWriter(self.root, constants=constants)
        self._has_receivers = fault.receivers > 0
        self._before: _Held | None = None
        self._first_server: psutil.Process | None = None

    def __enter__(self) -> Self:
        self.root.mkdir()
        try:
            self.place = self._cleared.enter_context(self._make_place(self.root))
            environment = self._cleared.enter_context(pytest.MonkeyPatch.context())
            environment.setenv("LD_PRELOAD", str(build_library("failing_calls", self._library_directory)))
            environment.setenv("FAILING_CALLS", str(self._rules))
            environment.setenv("FAILING_CALLS_ROOT", str(self.root))
            self.fail()
            self.writer.start()
            self._first_server = self.server()
            self.writes_good_files()
            self.writer.becomes_empty()
            self._before = self._held()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.writer.members():
            with contextlib.suppress(psutil.Error):
                process.resume()
        self.writer.stop()
        self._cleared.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def fail(self, *calls: FailingCall) -> None:
        """From now on, make these calls fail, and no others."""
        fresh = self._rules.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in (next(self._numbers), *calls)))
        fresh.replace(self._rules)

    @contextlib.contextmanager
    def open_file(self, name: str, *, timeout_seconds: float = HANG_SECONDS) -> Any:
        """Open a file with this name below the root, and publish it at the end of the block."""
        with WriterClient(self.writer.tcp_address, timeout_seconds=timeout_seconds) as client:
            file: RemoteFile = client.create(str(self.root / name), TABLE.schema, _OPTIONS)
            with file:
                yield file

    def write(self, name: str = "part.parquet") -> None:
        """Write a file of several row groups and read the file again."""
        with self.open_file(name) as file:
            for _ in range(_BATCHES):
                file.write(TABLE)
        assert pq.read_table(self.root / name).equals(pa.concat_tables([TABLE] * _BATCHES))

    def writes_good_files(self) -> None:
        """Write three files, check their rows, and remove them."""
        for _ in range(_GOOD_FILES):
            name = f"good-{next(self._names)}.parquet"
            self.write(name)
            (self.root / name).unlink()

    def start_again(self) -> None:
        """Start the writer as its platform would, when it has ended."""
        family = self.writer.members()
        self.writer.wait(timeout_seconds=HANG_SECONDS)
        until("every process of the writer has ended", lambda: not any(member.is_running() for member in family[1:]))
        self.writer.start_again()

    def child(self) -> psutil.Process | None:
        """Return the process that encodes, or None while the supervisor replaces it."""
        return next(iter(self.writer.members()[1:]), None)

    def server(self) -> psutil.Process | None:
        """Return the process that clients connect to, or None while the writer replaces it."""
        return next(iter(self.writer.members()[2 if self._has_receivers else 1 :]), None)

    def wait_until_healed(self) -> None:
        """Wait until a new process serves clients."""

        def serves() -> bool:
            if self.server() in (None, self._first_server):
                return False
            try:
                self.writer.status()
            except grpc.RpcError:
                return False
            return True

        until("the writer serves again", serves)

    def is_as_before(self) -> None:
        """Check that every byte, descriptor and process is released, and every removable unfinished file is gone."""
        self.writer.becomes_empty()
        unfinished = [path.name for path in self.root.rglob("*") if path.suffix == ".updraft"]
        assert len(unfinished) <= self._unfinished

        def nothing_more() -> bool:
            before, held = self._before, self._held()
            assert before is not None
            fewer = held.descriptors <= before.descriptors and held.processes == before.processes
            return fewer and held.resident_bytes <= before.resident_bytes + MEMORY_TOLERANCE_BYTES

        until("everything is given back", nothing_more, timeout_seconds=30)

    def _held(self) -> _Held:
        members = self.writer.members()
        return _Held(
            sum(member.num_fds() for member in members),
            sum(member.memory_info().rss for member in members),
            len(members),
        )
