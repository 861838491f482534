# SPDX-License-Identifier: Apache-2.0
"""Spark session in a separate process for each variant, with its CPU time."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.programs.bench.formats_variants import VARIANTS
from tests.support.cpu import cpu_seconds
from tests.support.paths import PYTHON, REPOSITORY
from tests.support.service import WITH_ITS_OWNER
from tests.support.writer import LocalWriter

_ANSWER_TIMEOUT_SECONDS = 300
_WATCH_SECONDS = 0.02


@dataclass(frozen=True)
class Run:
    """Time and memory of one run of a statement.

    Attributes:
        wall_s: seconds measured by the session's Python.
        cpu_s: CPU seconds of the session's processes and the writer.
        peak_bytes: largest growth of the writer's memory during the run.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int


class Session:
    """Spark session of one variant."""

    def __init__(self, name: str, jars: Path, directory: Path, writer: LocalWriter):
        self.name = name
        self.variant = VARIANTS[name]
        self.directory = directory
        self._writer = writer
        command = [str(PYTHON), "-m", "tests.programs.bench.formats_spark", name, str(jars), str(directory)]
        self._process = subprocess.Popen(
            [*WITH_ITS_OWNER, *command, writer.tcp_endpoint],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._answer()

    def run(self, sql: str) -> Run:
        """Run a statement and time it."""
        roots = [self._process.pid, self._writer.pid]
        with self._peak() as peaks:
            before = cpu_seconds(roots)
            wall_s = float(str(self._ask(sql)["wall_s"]))
            cpu_s = cpu_seconds(roots) - before
        return Run(wall_s, cpu_s, max(peaks))

    @contextlib.contextmanager
    def _peak(self) -> Iterator[list[int]]:
        """Record the largest growth of the writer's memory during the block."""
        done = threading.Event()

        def held() -> int:
            return sum(process.memory_info().rss for process in self._writer.members())

        base, peaks = held(), [0]

        def watch() -> None:
            while not done.wait(_WATCH_SECONDS):
                peaks.append(held() - base)

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield peaks
        finally:
            done.set()
            watching.join()

    def value(self, sql: str) -> str:
        """Return the first value of a query."""
        rows = self._ask(sql)["rows"]
        assert isinstance(rows, list)
        return str(rows[0][0])

    def do(self, sql: str) -> None:
        """Run a statement without timing it."""
        self._ask(sql)

    def stop(self) -> None:
        """End the process with its JVM."""
        family = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _ask(self, sql: str) -> dict[str, object]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"sql": sql}) + "\n")
        return self._answer()

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        # Comet's library logs to standard output.
        line = "\n"
        while line and not line.startswith("{"):
            ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER_TIMEOUT_SECONDS)
            line = self._process.stdout.readline() if ready else ""
        if not line:
            raise SystemExit(f"{self.name} gave no answer: see above")
        return dict(json.loads(line))
