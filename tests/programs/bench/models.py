# SPDX-License-Identifier: Apache-2.0
"""`make bench-models`: throughput and memory of a model whose batches join rows of many exchanges.

Exchanges with small batches call the model of docs/examples/functions/digits.py in three ways: with joined batches, as
in the example; with one batch at a time in the same kind of process; and without batching, in a copy of the model in
each worker. The program prints rows per second, the pool's own record of batches and waits, and the memory of all
processes that run user code. In this memory, a page shared by several processes counts in proportion (PSS); if the user
may not read PSS, the program prints anonymous memory instead. With a GPU, `--module
tests.programs.bench.torch_model_functions` calls the model of digits_torch.py, and the program prints the GPU's memory
too. The exit status is 1 if a promise is missed: joined batches have at least 512 rows, 99 of 100 batches wait no
longer than configured, joined batches process four times as many rows as one batch at a time, and memory contains one
copy of the model.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool

_MODULE = "tests.programs.bench.model_functions"
_JOINED, _ONE_BY_ONE, _IN_EACH_WORKER = "digit", "digit_one_by_one", "digit_in_each_worker"
_WAIT_SECONDS = 0.1
"""Batching wait that the example configures."""
_LEAST_ROWS = 512
_LEAST_GAIN = 4.0
_MOST_COPIES = 1.5
"""Limit for one copy of the model, plus memory that workers share with each other but not with a model process."""
_PIXELS = 64


@dataclass(frozen=True)
class Measured:
    """Measurements of one function under the load of all exchanges."""

    rows_per_second: float
    workers_bytes: Sequence[int]
    """Memory of each worker."""
    models_bytes: Sequence[int]
    """Memory of each of the function's own processes."""
    model: dict[str, Any]
    """Entry of the function's processes on the status page; empty if the function has no processes."""
    gpu_mib: int | None = None
    """GPU memory in use during the run; None without a GPU."""

    @property
    def memory(self) -> str:
        """Kind of memory and amounts, in words."""
        on_gpu = "" if self.gpu_mib is None else f", {self.gpu_mib:,} MiB of the GPU's"
        own = f", {mean(self.workers_bytes) / 2**20:.1f} in a worker"
        model = f" and {max(self.models_bytes) / 2**20:.1f} in the function's process" if self.models_bytes else ""
        return f"{sum([*self.workers_bytes, *self.models_bytes]) / 2**20:8,.0f} MiB of memory{own}{model}{on_gpu}"


def main() -> int:
    """Measure and print; return 1 if a promise is missed."""
    parser = argparse.ArgumentParser(prog="bench-models", description=__doc__)
    parser.add_argument("--exchanges", type=int, default=16, help="exchanges at a time, as many as workers (16)")
    parser.add_argument("--rows", type=int, default=64, help="rows in each of their batches (64)")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each function (20)")
    parser.add_argument("--module", default=_MODULE, help=f"with the three functions ({_MODULE})")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{options.exchanges} exchanges of {options.rows}-row batches, {options.seconds:g} seconds for each function")
    print(f"{os.cpu_count()} cores, load average {load:.1f} at the start")
    found = {name: measured(options, name) for name in (_IN_EACH_WORKER, _ONE_BY_ONE, _JOINED)}
    for name, each in found.items():
        print(f"{name:24}{each.rows_per_second:8,.0f} rows/s{each.memory}")
    missed = promises(found[_JOINED], found[_ONE_BY_ONE], found[_IN_EACH_WORKER])
    ratio = found[_JOINED].rows_per_second / found[_IN_EACH_WORKER].rows_per_second
    print(f"joined beside a model in each worker: {ratio:.1f} times the rows")
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


def promises(joined: Measured, one_by_one: Measured, in_each_worker: Measured) -> Sequence[str]:
    """Print all results; return the missed promises."""
    model = joined.model
    rows = model["rows"] / max(model["batches"], 1)
    gain = joined.rows_per_second / one_by_one.rows_per_second
    print(f"joined: {model['batches']} batches of {rows:.0f} rows on average")
    print(f"joined: waited at most {model['wait_seconds']} s, 99 of 100 batches; {_WAIT_SECONDS} s are configured")
    print(f"joined beside one batch at a time: {gain:.1f} times the rows")
    held = copies(joined, in_each_worker)
    print(f"joined: {held:.1f} times the memory that a worker takes for the model")
    missed = []
    if rows < _LEAST_ROWS:
        missed.append(f"batches of {rows:.0f} rows, promised at least {_LEAST_ROWS}")
    if model["wait_seconds"] is None or model["wait_seconds"] > _WAIT_SECONDS:
        missed.append(f"a wait of {model['wait_seconds']} s, configured {_WAIT_SECONDS} s")
    if gain < _LEAST_GAIN:
        missed.append(f"{gain:.1f} times the rows of one batch at a time, promised at least {_LEAST_GAIN:g}")
    if held > _MOST_COPIES:
        missed.append(f"{held:.1f} times the memory of one model, promised one copy of it")
    return missed


def copies(joined: Measured, in_each_worker: Measured) -> float:
    """Return the memory of all processes beyond that of workers without the model, in multiples of one model."""
    with_model_bytes, least_bytes = mean(in_each_worker.workers_bytes), min(joined.workers_bytes)
    if least_bytes > with_model_bytes / 2:
        # Every worker contains the model, even the smallest worker.
        return float(len(joined.workers_bytes) + len(joined.models_bytes))
    taken_bytes = sum(joined.models_bytes) + sum(joined.workers_bytes) - least_bytes * len(joined.workers_bytes)
    return taken_bytes / (with_model_bytes - least_bytes)


def measured(options: argparse.Namespace, name: str) -> Measured:
    """Measure a function under the load of all exchanges, in a separate pool."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    arguments = ["--functions", options.module]
    with LocalPool(workers=options.exchanges, session_functions="off", arguments=arguments) as pool:
        exchanges = [_Exchange(pool.tcp_address, name, options.rows) for _ in range(options.exchanges)]
        # Load the models and open the connections.
        for exchange in exchanges:
            exchange.call()
        before = _model(pool, name)
        _together(exchanges, options.seconds)
        time.sleep(3)
        after = _model(pool, name)
        gpu_mib = _gpu_mib()
        workers = [_memory_bytes(process.pid) for process in pool.workers()]
        models = [_memory_bytes(process["pid"]) for process in after.get("processes", ())]
        for exchange in exchanges:
            exchange.close()
    counted = {key: after[key] - before.get(key, 0) for key in ("batches", "rows")} if after else {}
    return Measured(
        sum(exchange.rows_per_second for exchange in exchanges), workers, models, {**after, **counted}, gpu_mib
    )


def _gpu_mib() -> int | None:
    program = shutil.which("nvidia-smi")
    if not program:
        return None
    command = [program, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(int, subprocess.check_output(command, text=True).split()))


class _Exchange:
    """Plain Flight client that sends a batch and waits for its results."""

    def __init__(self, address: str, name: str, rows: int) -> None:
        import numpy as np

        pixels = np.random.default_rng(0).integers(0, 17, rows * _PIXELS).astype("float64")
        offsets = pa.array(range(0, rows * _PIXELS + 1, _PIXELS), pa.int32())
        self._batch = pa.record_batch({"pixels": pa.ListArray.from_arrays(offsets, pa.array(pixels))})
        self._client = flight.connect(f"grpc://{address}")
        self._writer, self._reader = self._client.do_exchange(flight.FlightDescriptor.for_path(name))
        self._writer.begin(self._batch.schema)
        self.rows_per_second = 0.0

    def call(self) -> None:
        """Send one batch."""
        self._writer.write_batch(self._batch)
        assert self._reader.read_chunk().data.num_rows == self._batch.num_rows

    def run(self, seconds: float) -> None:
        """Send batches one after the other for this time."""
        began, batches = time.monotonic(), 0
        while time.monotonic() < began + seconds:
            self.call()
            batches += 1
        self.rows_per_second = batches * self._batch.num_rows / (time.monotonic() - began)

    def close(self) -> None:
        self._writer.done_writing()
        self._client.close()


def _together(exchanges: Sequence[_Exchange], seconds: float) -> None:
    threads = [threading.Thread(target=exchange.run, args=(seconds,)) for exchange in exchanges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _model(pool: LocalPool, name: str) -> dict[str, Any]:
    """Return the entry of the function's processes on the status page, or an empty entry."""
    status = json.loads(pool.page("/status.json")[0])
    return next((model for model in status["models"] if model["name"] == name), {})


def _memory_bytes(pid: int) -> int:
    try:
        return _field_bytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")
    except PermissionError:
        return _field_bytes(Path(f"/proc/{pid}/status"), "RssAnon:")


def _field_bytes(file: Path, name: str) -> int:
    return next(int(line.split()[1]) * 1024 for line in file.read_text().splitlines() if line.startswith(name))


if __name__ == "__main__":
    sys.exit(main())
