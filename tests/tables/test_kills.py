# SPDX-License-Identifier: Apache-2.0
"""Kills of executors, writers and drivers at each stage of a write: committed data is complete, no other file stays.

An application appends to a table and deletes from it. At each stage, the test kills an executor and the writer; it
kills the driver last. Then another Spark session reads the table, and cleans it with the table format's own command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.paths import REPOSITORY
from tests.support.spark import runtime_confs
from tests.support.waiting import until
from tests.support.writer import LocalWriter
from tests.tables.kept_table import KeptTable
from tests.tables.kills_application import batches_after

# Five kills, with restarts of JVMs and services, take longer than the default timeout.
pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

# Usually three steps take a few seconds; on a busy machine they take half a minute.
_STEPS_SECONDS = 180
_TAIL = 4000
_STAGES = ("writes", "publishes")


class Application:
    """Application that writes a table in separate processes."""

    def __init__(self, table: KeptTable, writer: LocalWriter, log: Path) -> None:
        jars = os.environ["UPDRAFT_TABLE_JARS"]
        arguments = [table.format, table.name, writer.tcp_endpoint, jars, table.catalog, str(table.warehouse)]
        self.committed = 0
        """Number of steps that the application has reported as committed."""
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.tables.kills_application", *arguments],
            cwd=REPOSITORY,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.committed = int(line)

    def goes_on(self, steps: int) -> None:
        """Wait until this many more steps have committed."""
        wanted = self.committed + steps

        def has() -> bool:
            assert self._process.poll() is None, "the application has ended"
            return self.committed >= wanted

        until(f"{steps} more steps", has, timeout_seconds=_STEPS_SECONDS)

    def kill_executor(self) -> None:
        """Kill one of the executors."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        executors = [
            process
            for process in family
            if process.status() != psutil.STATUS_ZOMBIE
            and "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
        ]
        executors[0].kill()

    def kill(self) -> None:
        """Kill the driver and all other processes of the application."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def _kill_writer(writer: LocalWriter) -> None:
    processes = [process for process in writer.members() if "updraft_writer.process" in process.cmdline()]
    processes[0].kill()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LocalWriter]:
    with LocalWriter(tmp_path, arguments=["--quota-bytes", str(64 << 20)]) as writer:
        yield writer
        # If the test fails, pytest shows this output.
        print(writer.log())


def _reaches(stage: str, table: KeptTable, writer: LocalWriter) -> None:
    """Wait until some step that begins now or later has reached a stage."""
    data, log = table.data(), table.log()
    stages: dict[str, Callable[[], bool]] = {
        "writes": lambda: writer.status()["held_bytes"] > 0,
        "publishes": lambda: any(file.suffix == ".parquet" for file in table.data() - data),
        "commits": lambda: bool(table.log() - log),
    }
    until(f"a step {stage}", stages[stage], timeout_seconds=_STEPS_SECONDS)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("last", ["writes", "publishes", "commits"])
def test_kills_leave_whole_steps_and_no_stray_file(
    spark: SparkSession, writer: LocalWriter, tmp_path: Path, table_format: str, last: str
) -> None:
    table = KeptTable(spark, table_format, tmp_path)
    with runtime_confs(spark, table.confs):
        table.create()
        application = Application(table, writer, tmp_path / "application.log")
        try:
            application.goes_on(2)
            for stage in _STAGES:
                for kill in (application.kill_executor, lambda: _kill_writer(writer)):
                    _reaches(stage, table, writer)
                    kill()
                    application.goes_on(1)
            _reaches(last, table, writer)
        finally:
            application.kill()
            log = (tmp_path / "application.log").read_text()
            print(log[-_TAIL:])
        # Spark noticed each kill of an executor, and at least one killed writer had an open file.
        assert log.count("Lost executor") >= len(_STAGES)
        assert "did not write" in log
        writer.becomes_empty()
        assert all(pq.read_metadata(file).num_rows for file in table.data() if file.suffix == ".parquet")
        # The driver may have died after its last commit, but before it printed the step.
        found = table.batches()
        assert found in (batches_after(application.committed), batches_after(application.committed + 1))
        table.clean()
        assert table.data() == table.in_use()
        assert table.is_by_writer()
        assert table.batches() == found
