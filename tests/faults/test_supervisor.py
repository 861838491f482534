# SPDX-License-Identifier: Apache-2.0
"""Death of the supervisor, from which the platform recovers, and stuck children, which the supervisor replaces."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from tests.faults.conftest import WORKERS
from tests.faults.victims import VICTIMS, wait_until_gone, wait_until_whole
from tests.support.flight import echo_command, exchange, whole_request
from tests.support.paths import SERVER
from tests.support.pool import LocalPool
from tests.support.ports import free_ports
from tests.support.waiting import until

_LOOP = "while true; do {command}; done"


class RestartLoop:
    """Pool at fixed paths under the simplest platform: a shell that restarts the pool whenever it ends."""

    def __init__(self, directory: Path) -> None:
        self.port = next(free_ports())
        self._ready_file = directory / "ready.json"
        command = (
            f"{SERVER} serve --listen 127.0.0.1:{self.port} --listen-unix {directory}/pool.sock --admin-listen ''"
            f" --metrics-listen '' --workers {WORKERS} --ready-file {self._ready_file}"
            f" --runtime-directory {directory}/runtime"
        )
        self._log = (directory / "pool.log").open("wb")
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _LOOP.format(command=command)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def supervisor_once_ready(self, *, after: int = 0) -> psutil.Process:
        """Return the supervisor of a ready pool, once its pid differs from `after`."""

        def ready() -> int | None:
            with contextlib.suppress(FileNotFoundError):
                pid = int(json.loads(self._ready_file.read_text())["supervisor"])
                return pid if pid != after else None
            return None

        return psutil.Process(until("the pool is ready", ready))

    def stop(self) -> None:
        family = psutil.Process(self._shell.pid).children(recursive=True)
        for process in (psutil.Process(self._shell.pid), *family):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._shell.wait()
        self._log.close()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[RestartLoop]:
    # Use a directory with a path short enough for a Unix socket, unlike pytest's.
    with tempfile.TemporaryDirectory(prefix="updraft-loop-") as directory:
        running = RestartLoop(Path(directory))
        yield running
        running.stop()


def test_a_killed_supervisor_takes_the_pool_with_it(pool: LocalPool) -> None:
    family = pool.members()
    addresses = (pool.tcp_address, pool.admin_address, pool.metrics_address)
    family[0].kill()
    wait_until_gone(family, addresses)


def test_a_pool_whose_supervisor_was_killed_starts_again_where_it_was(loop: RestartLoop) -> None:
    supervisor = loop.supervisor_once_ready()
    for _ in range(2):
        supervisor.kill()
        supervisor = loop.supervisor_once_ready(after=supervisor.pid)
        batch = pa.RecordBatch.from_pydict({"_0": [1]})
        request = whole_request(echo_command(), batch.schema, [batch])
        assert exchange(f"127.0.0.1:{loop.port}", request).batches() == [batch]


@pytest.mark.parametrize("victim", ["zygote", "front"])
def test_a_stopped_process_is_noticed_and_replaced(pool: LocalPool, victim: str) -> None:
    stuck = until(f"the pool has a {victim}", lambda: VICTIMS[victim](pool))
    stuck.send_signal(signal.SIGSTOP)
    wait_until_whole(pool, stuck, WORKERS)
    assert f"the {victim} has not reported" in pool.log()
