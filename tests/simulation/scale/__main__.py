# SPDX-License-Identifier: Apache-2.0
"""`make bench-scale`: measure a small pool, simulate it and ten thousand executors, and write docs/scale.md.

Each step leaves its record in build/scale, from which `--only page` writes the page alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.scale import one_pool, records
from tests.simulation.scale.measured import calibration
from tests.simulation.scale.page import write_page
from tests.simulation.scale.scenarios import QUEUE_LIMIT, SCENARIOS

_QUEUE_LIMITS = (4, 16, QUEUE_LIMIT)
_QUEUE_SCALE = 0.1
_ALLOWED_ERROR = 0.15
_Runs = Sequence[tuple[str, str, float, int]]
"""Name of the record, scenario, scale and queue limit of each run."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-scale", description=__doc__)
    parser.add_argument("--measure", type=float, default=60.0, help="seconds for which the real pool is measured (60)")
    parser.add_argument("--scenario", choices=[each.name for each in SCENARIOS], help="simulate this scenario alone")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the cluster; 0.25 simulates a quarter (1)")
    parser.add_argument(
        "--only", choices=["measure", "simulate", "queues", "one-pool", "page"], help="do this step alone"
    )
    parser.add_argument("--processes", type=int, default=2, help="scenarios simulated at a time (2)")
    options = parser.parse_args()
    queues = [(f"queue-limit-{limit}", "outage", _QUEUE_SCALE, limit) for limit in _QUEUE_LIMITS]
    if options.only in (None, "measure"):
        records.keep("calibration", calibration(options.measure))
    if options.only in (None, "simulate"):
        names = [options.scenario] if options.scenario else [scenario.name for scenario in SCENARIOS]
        _simulate([(name, name, options.scale, QUEUE_LIMIT) for name in names], options.processes)
    if options.only in (None, "queues"):
        _simulate(queues, options.processes)
    if options.only in (None, "one-pool"):
        for tasks, limit in _one_pools():
            records.keep(_one_pool(tasks, limit), one_pool.simulate(tasks, limit, one_pool.RUN_SECONDS[tasks]))
    return _page(queues) if options.only in (None, "page") else 0


def _simulate(runs: _Runs, processes: int) -> None:
    with ProcessPoolExecutor(processes, get_context("forkserver")) as pool:
        for name in pool.map(records.run, *zip(*runs, strict=True)):
            print(name, flush=True)


def _one_pools() -> Sequence[tuple[str, int]]:
    return [(tasks, limit) for tasks in one_pool.TASK_SECONDS for limit in _QUEUE_LIMITS]


def _one_pool(tasks: str, limit: int) -> str:
    return f"one-pool-{tasks.replace(' ', '-')}-{limit}"


def _page(queues: _Runs) -> int:
    found = records.calibration()
    outcomes = {scenario.name: records.outcome(scenario.name) for scenario in SCENARIOS}
    one_pools = {(tasks, limit): records.one_pool(_one_pool(tasks, limit)) for tasks, limit in _one_pools()}
    write_page(found, outcomes, {run[3]: records.outcome(run[0]) for run in queues}, one_pools)
    print("difference between simulated and measured:", found.errors)
    return int(any(abs(error) > _ALLOWED_ERROR for error in found.errors.values()))


if __name__ == "__main__":
    sys.exit(main())
