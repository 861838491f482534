# SPDX-License-Identifier: Apache-2.0
"""Python workers that a pool does not run: the job fails with advice, or waits for the pool; nothing hangs."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.ports import free_ports
from tests.support.spark import ENDPOINT

pytestmark = pytest.mark.timeout(240)
_LONGEST_SECONDS = 120
_ACQUIRE = "spark.updraft.udf.acquireTimeout"
_CONNECT = "spark.updraft.udf.connectTimeout"
_FAILED = "The worker on the pool failed: "


class Application:
    """Running application, whose pool each job chooses."""

    def __init__(self, log: Path) -> None:
        self._log = log
        command = [str(PYTHON), "-m", "tests.workers.refusals_application"]
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )

    def run(
        self,
        endpoint: str,
        *,
        confs: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        python_version: str = "",
        is_deadly: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        """Run a job with these settings and return its `value`, or its `error` and the number of `failures`.

        Call `meanwhile` while the job's task runs.
        """
        request = {
            "confs": {ENDPOINT: endpoint, **(confs or {})},
            "environment": environment or {},
            "python_version": python_version,
            "is_deadly": is_deadly,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        assert self._line() == "runs"
        meanwhile()
        return dict(self._line())

    def error(self, endpoint: str, **differences: Any) -> str:
        """Run a job that must fail, and return its error."""
        found = self.run(endpoint, **differences)
        assert "value" not in found, found
        # Spark retries the task, as on stock.
        assert found["failures"] == 2, found
        return str(found["error"])

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-5000:]
        return json.loads(line)

    def end(self) -> None:
        """End the application."""
        self._process.communicate(timeout=_LONGEST_SECONDS)
        assert self._process.returncode == 0, self._log.read_text()[-5000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with ExitStack() as stack:
        application = Application(tmp_path_factory.mktemp("refusals") / "log")
        stack.callback(application.kill)
        yield application
        application.end()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Return an endpoint where nothing listens."""
    # Bind the port, so that no other process uses it.
    with socket.socket() as unserved:
        unserved.bind(("127.0.0.1", 0))
        yield f"grpc+tcp://127.0.0.1:{unserved.getsockname()[1]}"


@pytest.fixture(scope="module")
def pool_of_another_version(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    """Return a pool that finds another PySpark installed."""
    packages = tmp_path_factory.mktemp("packages")
    metadata = packages / "pyspark-9.8.7.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 9.8.7\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(packages))
        pool = LocalPool(workers=1).start()
    yield pool
    pool.stop()


def test_a_job_is_told_why_the_pool_refuses_it(application: Application) -> None:
    with LocalPool(workers=1, session_functions="off") as pool:
        refused = application.error(pool.tcp_endpoint)
    assert f"{_FAILED}this pool runs registered functions only" in refused
    assert "--session-functions unsigned" in refused


def test_another_hash_seed_is_refused(application: Application, nowhere: str) -> None:
    error = application.error(nowhere, environment={"PYTHONHASHSEED": "7"})
    assert f"{_FAILED}the session sets PYTHONHASHSEED to 7, but workers of a pool run with PYTHONHASHSEED=0" in error


def test_another_worker_module_is_refused(application: Application, nowhere: str) -> None:
    error = application.error(nowhere, confs={"spark.python.worker.module": "my.worker"})
    assert f"{_FAILED}Updraft does not run the worker module my.worker" in error
    assert "without spark.python.worker.module" in error


def test_a_pool_with_another_python_names_both_versions(
    application: Application, pool_of_another_version: LocalPool
) -> None:
    error = application.error(pool_of_another_version.tcp_endpoint, python_version="3.1")
    has = pool_of_another_version
    assert f"{_FAILED}the function needs Python 3.1, this pool has Python 3." in error, has.log()
    assert "use a pool with Python 3.1" in error


def test_a_pool_with_another_pyspark_names_both_versions(
    application: Application, pool_of_another_version: LocalPool
) -> None:
    error = application.error(pool_of_another_version.tcp_endpoint)
    needed = pyspark.__version__
    assert f"{_FAILED}the function needs pyspark {needed}, this pool has pyspark 9.8.7" in error
    assert f"use a pool with pyspark {needed.rpartition('.')[0]}" in error


@pytest.mark.parametrize(
    ("connect", "acquire", "setting"),
    [("1s", "2s", _ACQUIRE), pytest.param("2s", "1s", _CONNECT, marks=pytest.mark.campaign)],
)
def test_a_pool_that_is_away_fails_the_job_once_the_time_is_over(
    application: Application, nowhere: str, connect: str, acquire: str, setting: str
) -> None:
    error = application.error(nowhere, confs={_CONNECT: connect, _ACQUIRE: acquire})
    assert f"{_FAILED}cannot reach a pool at {nowhere} within 2.0 s ({setting})" in error
    assert f"({ENDPOINT}): connection refused: nothing listens at" in error


def test_a_function_of_rdds_that_kills_its_workers_is_held_back_in_all_jobs_and_others_are_not(
    application: Application,
) -> None:
    constants = {"updraft_server.front.limits.deaths.ALLOWED_DEATHS": 4}
    confs = {_ACQUIRE: "1s"}
    with LocalPool(workers=1, constants=constants) as pool:
        ends = [application.error(pool.tcp_endpoint, confs=confs, is_deadly=True) for _ in range(3)]
        assert ["has killed 4 workers in a row and is held back for" in end for end in ends] == [False, False, True]
        assert application.run(pool.tcp_endpoint, confs=confs) == {"value": [1]}


def test_a_job_waits_for_a_pool_that_comes_back(application: Application) -> None:
    address = f"127.0.0.1:{next(free_ports())}"
    pool = LocalPool(workers=1, arguments=["--listen", address])
    try:
        found = application.run(f"grpc+tcp://{address}", confs={_ACQUIRE: f"{_LONGEST_SECONDS}s"}, meanwhile=pool.start)
    finally:
        pool.stop()
    assert found == {"value": [1]}
