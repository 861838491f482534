# SPDX-License-Identifier: Apache-2.0
"""Spark in a separate process for each variant. The process stays alive and runs cases on request."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.programs.bench.case import Case
from tests.programs.bench.variants import Variant
from tests.support.cpu import cpu_seconds
from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool

POOL_WORKERS = 2
_ANSWER_TIMEOUT_SECONDS = 300
# Stock 4.3 with pipelining sometimes assigns a task a worker whose channel is already closed.
_TRIES = 5


class StaysOnStockError(Exception):
    """Raised if the pool does not run a case's function."""


class SparkProcess:
    """Spark process of a variant, with the CPU time of all processes that work for this Spark."""

    def __init__(self, variant: Variant, endpoint: str, pool_pid: int | None, data: Path):
        self.variant = variant
        command = [str(PYTHON), "-m", "tests.programs.bench.driver", variant.name, endpoint, str(data)]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self._process.pid
        self._roots = [self._process.pid, *([pool_pid] if pool_pid is not None else [])]
        self._answer()

    def run(self, case: Case, rows: int) -> tuple[float, float]:
        """Return wall and CPU seconds of one run; raise StaysOnStockError if the pool does not run the function."""
        for _ in range(_TRIES):
            before = cpu_seconds(self._roots)
            answer = self._ask({"case": case.name, "rows": rows})
            cpu = cpu_seconds(self._roots) - before
            # Collect garbage now, so that neither the next run nor the next process has to.
            self._ask({"clean": True})
            if "wall_s" in answer:
                return float(answer["wall_s"]), cpu
            if "stays_on_stock" in answer:
                raise StaysOnStockError(case.name)
            print(f"{self.variant.name} failed on {case.name} and runs again: {answer['failed']}", flush=True)
        raise SystemExit(f"{self.variant.name} failed on {case.name} {_TRIES} times")

    def stop(self) -> None:
        """End the process with its JVM."""
        assert self._process.stdin is not None
        family = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _ask(self, order: dict[str, object]) -> dict[str, str]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        return self._answer()

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER_TIMEOUT_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise SystemExit(f"{self.variant.name} gave no answer: see above")
        return dict(json.loads(line))


@contextlib.contextmanager
def spark_processes(variants: Sequence[Variant], data: Path) -> Iterator[list[SparkProcess]]:
    """Start a Spark for each variant, and one pool for the variants that use it."""
    with contextlib.ExitStack() as stack:
        pool = None
        if any(variant.connector for variant in variants):
            pool = stack.enter_context(LocalPool(workers=POOL_WORKERS))
        processes = []
        for variant in variants:
            endpoint, pid = "", None
            if variant.connector and pool is not None:
                near = {"updraft-unix": pool.unix_endpoint, "updraft-loopback": pool.loopback_endpoint}
                endpoint, pid = near.get(variant.name, pool.tcp_endpoint), pool.pid
            processes.append(SparkProcess(variant, endpoint, pid, data))
            stack.callback(processes[-1].stop)
            print(f"started {variant.name}", flush=True)
        yield processes
