# SPDX-License-Identifier: Apache-2.0
"""`make bench-tenants`: waiting time of a tenant that calls now and then, while hundreds of tenants call all the time.

There is one pool and an identity for each tenant. All tenants but one keep exchanges open without a pause. The quiet
tenant sends an exchange, waits for the answer, and then waits until its share allows the next one. The other tenants
stop and resume in turn, so that the program times the quiet tenant alone and among the others within the same minutes.
Every function sleeps, so that tenants compete for workers and not for the machine's cores. No test asserts these times.
The program prints medians and 99th percentiles next to the promise; the exit status is 1 if the median misses the
promise.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import LongType

from tests.support.flight import echo_command, session_command, whole_request
from tests.support.paths import BUILD
from tests.support.pool import LocalPool
from updraft.v1.exchange_pb2 import Argument, ExchangeCommand, SessionPayload, Udf

_DIRECTORY = BUILD / "bench"
_PROMISED_RATIO = 2.0
_METHOD = "/arrow.flight.protocol.FlightService/DoExchange"
_SCALAR_PANDAS = 200
_TENANTS_OF_A_CHANNEL = 16
_RETRY_SECONDS = 0.5
_ROW = pa.record_batch({"_0": pa.array([1], pa.int64())})
_RUNNER_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "true",
    "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
}
_MODULE = """
import time
import pyarrow as pa
from updraft import function

@function(result=lambda schema: schema)
def nap(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep({seconds})
    return batch
"""
# gRPC's own client reports INTERNAL if a refusal arrives while the client writes.
_REFUSALS = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL)
_QUIET = "quiet"
# Give each exchange another task, because an exchange overtakes the queue if its task holds a worker.
_ATTEMPTS = itertools.count(1)


@dataclass
class Measured:
    """Seconds of the quiet tenant's exchanges, alone and among the other tenants."""

    kind: str
    alone: list[float] = field(default_factory=list)
    flooded: list[float] = field(default_factory=list)
    flood_exchanges: int = 0
    """Exchanges that the other tenants finished meanwhile."""
    flood_refusals: int = 0
    quiet_refusals: int = 0

    @property
    def ratio(self) -> float:
        """Median among the other tenants, divided by the median alone."""
        return statistics.median(self.flooded) / statistics.median(self.alone)


def main() -> int:
    """Measure, write build/bench/tenants.json, print the table; return 1 if the promise is missed."""
    options, load = _options(), os.getloadavg()[0]
    found = [measure(kind, options) for kind in options.kinds.split(",")]
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    (_DIRECTORY / "tenants.json").write_text(json.dumps([asdict(entry) for entry in found], indent=1) + "\n")
    _print(found, options, load)
    return 0 if all(entry.ratio <= _PROMISED_RATIO for entry in found) else 1


def measure(kind: str, options: argparse.Namespace) -> Measured:
    """Time the quiet tenant alone and among the other tenants, in turn."""
    measured = Measured(kind)
    with (
        tempfile.TemporaryDirectory(prefix="updraft-bench-") as name,
        _pool(Path(name), options) as pool,
        _flood(pool.tcp_address, kind, options) as flood,
    ):
        asyncio.run(_rounds(pool.tcp_address, measured, flood, options))
    return measured


async def _rounds(address: str, measured: Measured, flood: Flood, options: argparse.Namespace) -> None:
    # Time in which the quiet tenant's share of the workers suffices for one exchange.
    pause_seconds = options.seconds * (options.tenants + 1) / options.workers
    # Time after which each of the other tenants has had a turn and no longer counts as new.
    settling_seconds = 2 * pause_seconds + 1
    async with grpc.aio.insecure_channel(address) as channel:
        await _exchange(channel, _QUIET, _request(_QUIET, measured.kind, options.seconds))
        for _ in range(options.rounds):
            for seconds, floods in ((measured.alone, False), (measured.flooded, True)):
                flood.set(floods=floods)
                await asyncio.sleep(settling_seconds)
                for _ in range(options.exchanges):
                    await asyncio.sleep(pause_seconds * random.uniform(0.9, 1.3))
                    started = time.perf_counter()
                    request = _request(_QUIET, measured.kind, options.seconds)
                    measured.quiet_refusals += await _ended(channel, _QUIET, request)
                    seconds.append(round(time.perf_counter() - started, 5))
        flood.set(floods=False)
        measured.flood_exchanges, measured.flood_refusals = flood.counts()


class Flood:
    """Process of the tenants that call all the time."""

    def __init__(self, address: str, kind: str, options: argparse.Namespace) -> None:
        context = multiprocessing.get_context("spawn")
        self._on = context.Event()
        self._counts = context.Array("q", 2)
        self.process = context.Process(
            target=_run_flood, args=(address, kind, options, self._on, self._counts), daemon=True
        )
        self.process.start()

    def set(self, *, floods: bool) -> None:
        """Start or stop the calls of all tenants except the quiet one."""
        (self._on.set if floods else self._on.clear)()

    def counts(self) -> tuple[int, int]:
        """Return the numbers of successful exchanges and of refusals; raise SystemExit if the process has died."""
        if not self.process.is_alive():
            raise SystemExit("bench-tenants: the flood has failed")
        return self._counts[0], self._counts[1]


@contextmanager
def _flood(address: str, kind: str, options: argparse.Namespace) -> Iterator[Flood]:
    flood = Flood(address, kind, options)
    try:
        yield flood
    finally:
        flood.process.terminate()
        flood.process.join()


def _run_flood(address: str, kind: str, options: argparse.Namespace, on: Any, counts: Any) -> None:
    asyncio.run(_ask_always(address, kind, options, on, counts))


async def _ask_always(address: str, kind: str, options: argparse.Namespace, on: Any, counts: Any) -> None:
    channels = [
        # Otherwise, channels of one address would share a connection.
        grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1), ("updraft.number", number)])
        for number in range(-(-options.tenants // _TENANTS_OF_A_CHANNEL))
    ]

    async def ask(number: int) -> None:
        tenant = f"tenant-{number}"
        while True:
            request = _request(tenant, kind, options.seconds)
            if not on.is_set():
                await asyncio.sleep(0.1)
                continue
            code = await _exchange(channels[number // _TENANTS_OF_A_CHANNEL], tenant, request)
            counts[0 if code is None else 1] += 1
            if code is not None:
                await asyncio.sleep(_RETRY_SECONDS * random.uniform(1, 2))

    await asyncio.gather(*(ask(number) for number in range(options.tenants) for _ in range(options.open)))


async def _ended(channel: grpc.aio.Channel, tenant: str, request: Sequence[bytes]) -> int:
    """Retry until the pool accepts the exchange; return the number of refusals."""
    if await _exchange(channel, tenant, request) is None:
        return 0
    await asyncio.sleep(_RETRY_SECONDS)
    return 1 + await _ended(channel, tenant, request)


async def _exchange(channel: grpc.aio.Channel, tenant: str, request: Sequence[bytes]) -> grpc.StatusCode | None:
    """Run an exchange; return None, or the status if the pool refused the exchange."""
    call = channel.stream_stream(_METHOD)(iter(request), metadata=(("authorization", f"Bearer {tenant}"),))
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        if error.code() not in _REFUSALS:
            raise SystemExit(f"bench-tenants: an exchange failed: {error.code()}: {error.details()}") from None
        return error.code()
    return None


def _request(tenant: str, kind: str, seconds: float) -> list[bytes]:
    command = echo_command(name="nap") if kind == "registered" else _session(seconds)
    command.task.owner.application_id = tenant
    command.task.task_attempt_id = next(_ATTEMPTS)
    return [message.SerializeToString() for message in whole_request(command, _ROW.schema, [_ROW])]


def _session(seconds: float) -> ExchangeCommand:
    """Return the command of a pandas UDF that sleeps and returns its argument, so it holds a worker but no core."""

    def nap(series: Any) -> Any:
        time.sleep(seconds)
        return series

    pickled = cloudpickle.dumps((nap, LongType()))
    payload = SessionPayload(
        udfs=[Udf(arguments=[Argument(offset=0)], commands=[pickled], result_id=1)], runner_conf=_RUNNER_CONF
    )
    command = session_command(eval_type=_SCALAR_PANDAS)
    command.payload = payload.SerializeToString()
    return command


def _pool(directory: Path, options: argparse.Namespace) -> LocalPool:
    names = [_QUIET, *(f"tenant-{number}" for number in range(options.tenants))]
    identities = directory / "identities.toml"
    identities.write_text(
        "".join(
            f'[[identity]]\nname = "{name}"\ntenant = "{name}"\nscopes = ["call", "session"]\n'
            f'token_sha256 = ["{hashlib.sha256(name.encode()).hexdigest()}"]\n'
            for name in names
        )
    )
    (directory / "updraft_bench_nap.py").write_text(_MODULE.format(seconds=options.seconds))
    os.environ["PYTHONPATH"] = str(directory)
    arguments = ["--identities-file", str(identities), "--functions", "updraft_bench_nap", "--log-level", "warning"]
    return LocalPool(workers=options.workers, arguments=arguments)


def _print(found: Sequence[Measured], options: argparse.Namespace, load: float) -> None:
    machine = f"{os.cpu_count()} cores, load average {load:.1f} at the start"
    print(
        f"{options.tenants} tenants with {options.open} exchanges each and a quiet one, {options.workers} workers, "
        f"functions of {options.seconds * 1000:g} ms, {machine}; milliseconds of an exchange of the quiet one"
    )
    print(f"{'functions':12}{'':10}{'median':>8}{'99%':>8}{'ratio':>8}{'promised':>10}")
    for entry in found:
        for label, seconds in (("alone", entry.alone), ("flooded", entry.flooded)):
            last = statistics.quantiles(seconds, n=100)[-1]
            line = f"{entry.kind:12}{label:10}{statistics.median(seconds) * 1000:8.1f}{last * 1000:8.1f}"
            if label == "flooded":
                verdict = "kept" if entry.ratio <= _PROMISED_RATIO else "MISSED"
                line += f"{entry.ratio:8.2f}{_PROMISED_RATIO:10.1f}  {verdict}"
                line += f"; refused {entry.quiet_refusals} times"
                line += f"; the others: {entry.flood_exchanges} exchanges, {entry.flood_refusals} refused"
            print(line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-tenants", description=__doc__)
    parser.add_argument("--tenants", type=int, default=256, help="tenants that always ask (256)")
    parser.add_argument("--open", type=int, default=2, help="exchanges that each of them keeps open (2)")
    parser.add_argument("--workers", type=int, default=4, help="workers of the pool (4)")
    parser.add_argument("--seconds", type=float, default=0.1, help="that a function sleeps (0.1)")
    parser.add_argument("--rounds", type=int, default=4, help="times that the flood comes and goes (4)")
    parser.add_argument("--exchanges", type=int, default=5, help="of the quiet tenant in each half of a round (5)")
    parser.add_argument("--kinds", default="registered,session", help="of functions (registered,session)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
