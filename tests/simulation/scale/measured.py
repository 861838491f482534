# SPDX-License-Identifier: Apache-2.0
"""Small measured system: a real pool on this machine, whose clients never pause. The simulation has to match it.

Functions sleep, so that clients compete for workers and not for the machine's cores.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc.aio
import pyarrow as pa

from tests.simulation.scale.load import Load, Size, quantile
from tests.support.flight import echo_command, whole_request
from tests.support.pool import LocalPool

_METHOD = "/arrow.flight.protocol.FlightService/DoExchange"
_MODULE = """
import time
import pyarrow as pa
from updraft import function

@function(result=lambda schema: schema)
def nap(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(batch.column(0)[0].as_py() / 1000)
    return batch
"""
WORKERS, CLIENTS = 4, 12
_LEAST_MILLISECONDS, _MOST_MILLISECONDS = 100, 500
_WARM_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a system with WORKERS workers and CLIENTS clients."""

    exchanges_per_second: float
    median_wait_seconds: float
    p99_wait_seconds: float
    exchanges: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Figures of the measured system, and of its simulation."""

    overhead_seconds: float
    """Time of an exchange in addition to its function's own time, with one client and nothing to wait for."""
    measured: Figures
    simulated: Figures
    load_average: float
    """Load of the machine when the measurement began."""

    @property
    def errors(self) -> dict[str, float]:
        """Relative difference between each simulated figure and the measured figure."""
        measured, simulated = asdict(self.measured), asdict(self.simulated)
        return {name: simulated[name] / measured[name] - 1 for name in measured if name != "exchanges"}


def calibration(seconds: float) -> Calibration:
    """Measure the pool for this long, and simulate the same load."""
    load_average = os.getloadavg()[0]
    overhead, measured = asyncio.run(_measured(seconds))
    return Calibration(overhead, measured, simulated(seconds, overhead), load_average)


def simulated(seconds: float, overhead_seconds: float) -> Figures:
    """Simulate the measured system. An exchange holds its worker during the overhead too."""
    size = Size(
        executors=CLIENTS,
        pods=1,
        workers=WORKERS,
        seconds=_WARM_SECONDS + 20 * seconds,
        think_seconds=0.0,
        batch_seconds=lambda dice: _nap(dice) / 1000 + overhead_seconds,
        latency_seconds=0.0002,
    )
    result = Load(size).run()
    # A wait is the time that an exchange takes in addition to its function's time, so a wait includes the overhead.
    waits = [wait + overhead_seconds for wait in result.waits(_WARM_SECONDS, size.seconds)]
    return _figures(waits, size.seconds - _WARM_SECONDS)


def _figures(waits: list[float], seconds: float) -> Figures:
    return Figures(len(waits) / seconds, statistics.median(waits), quantile(waits, 0.99), len(waits))


def _nap(dice: random.Random) -> int:
    return dice.randint(_LEAST_MILLISECONDS, _MOST_MILLISECONDS)


async def _measured(seconds: float) -> tuple[float, Figures]:
    with tempfile.TemporaryDirectory(prefix="updraft-scale-") as directory:
        (Path(directory) / "updraft_scale_nap.py").write_text(_MODULE)
        os.environ["PYTHONPATH"] = directory
        with LocalPool(
            workers=WORKERS, arguments=["--functions", "updraft_scale_nap", "--log-level", "warning"]
        ) as pool:
            async with grpc.aio.insecure_channel(pool.tcp_address) as channel:
                alone = await _ask(channel, 1, seconds / 3)
                together = await _ask(channel, CLIENTS, seconds)
    return statistics.median(alone), _figures(together, seconds)


async def _ask(channel: grpc.aio.Channel, clients: int, seconds: float) -> list[float]:
    """Send exchanges without a pause; return the waits of the exchanges that ended after the warm-up."""
    waits: list[float] = []
    begin = time.monotonic() + _WARM_SECONDS
    numbers = itertools.count(1)

    async def keep_asking(dice: random.Random) -> None:
        while (began := time.monotonic()) < begin + seconds:
            nap = _nap(dice)
            command = echo_command(name="nap")
            command.task.owner.application_id = "scale"
            command.task.task_attempt_id = next(numbers)
            batch = pa.record_batch({"_0": pa.array([nap], pa.int64())})
            request = [message.SerializeToString() for message in whole_request(command, batch.schema, [batch])]
            async for _ in channel.stream_stream(_METHOD)(iter(request)):
                pass
            ended = time.monotonic()
            if begin <= ended < begin + seconds:
                waits.append(ended - began - nap / 1000)

    await asyncio.gather(*(keep_asking(random.Random(number)) for number in range(clients)))
    return waits
