# SPDX-License-Identifier: Apache-2.0
"""Report of a pool's status, and the sampler in the front's loop that keeps the last report for other threads."""

import asyncio
import json
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from updraft.v1.control_pb2 import PoolState, PoolStatus
from updraft_server.front.status.activity import Activity, Failure, OpenExchange, utc_now
from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.pool.leases import WorkerInfo


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of the server, its protocol and the workers' software."""

    server: str
    protocol: int
    python: str
    pyspark: str
    """Empty if the pool has no PySpark."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers by state, and ended workers by the cause of their end."""

    configured: int
    idle: int
    busy: int
    starting: int
    exits: Mapping[str, int]
    living: Sequence[WorkerInfo]
    """First `sampler.SHOWN_WORKERS` of the running workers."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Exchanges that wait for a worker."""

    waiting: int
    limit: int


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """Exchange in flight."""

    identity: Mapping[str, str]
    """Function and task, as named in log lines."""
    phase: str
    seconds: float
    batches: int
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class ModelRow:
    """Batched function and its processes."""

    name: str
    version: str
    processes: Sequence[Mapping[str, str | int]]
    """Fields of the `ModelReplica` of each process."""
    loads: int
    evictions: int
    deaths: int
    batches: int
    rows: int
    wait_seconds: float | None
    """99th percentile of the waits for a batch, rounded up to the bound of its histogram bucket.

    None if it is above the highest bound.
    """

    @property
    def rows_per_batch(self) -> float:
        """Average rows per batch; 0 before the first batch."""
        return self.rows / self.batches if self.batches else 0.0


@dataclass(frozen=True, slots=True)
class History:
    """Values of the last minutes, one for each interval, the oldest first."""

    interval_seconds: float
    exchanges_per_second: Sequence[float]
    rows_per_second: Sequence[float]
    waiting: Sequence[int]
    busy: Sequence[int]


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """Registered function."""

    name: str
    version: str
    doc: str
    owner: str
    fault: str
    """Why the function cannot be called, or what was wrong with its last calls; empty while it is healthy."""
    fault_is_final: bool
    """Whether the pool refuses every call because of the fault, until a reload of its functions."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report on a pool at one moment."""

    at: str
    """UTC time in ISO 8601."""
    host: str
    state: str
    uptime_seconds: int
    """Uptime of the front; it starts at 0 again when the front is replaced."""
    health: Mapping[str, bool]
    """Whether grpc.health.v1 reports each name as serving."""
    versions: Versions
    session_functions_allowed: bool
    signatures_required: bool
    """Whether the pool refuses session functions that no driver has signed."""
    sandbox: Mapping[str, str]
    """Reason why each layer of the workers' sandbox is off; empty if the layer is on."""
    workers: Workers
    queue: Queue
    reload_fault: str
    """Why the pool refused the last reload and kept the older functions; empty if it accepted the reload."""
    functions: Sequence[FunctionRow]
    models: Sequence[ModelRow]
    """Batched functions, with their processes."""
    exchanges_open: int
    exchanges: Sequence[ExchangeRow]
    """First `sampler.SHOWN_EXCHANGES` of the open exchanges, the oldest first."""
    errors: Sequence[Failure]
    """Last failures, the newest first."""
    rows: int
    """Rows that functions have taken since the front started; open exchanges count."""
    history: History

    def to_json(self) -> bytes:
        """Return the report as a JSON object."""
        return json.dumps(asdict(self)).encode()


INTERVAL_SECONDS = 2.0
KEPT_SAMPLES = 150
SHOWN_EXCHANGES = 100
SHOWN_WORKERS = 100


class Sampler:
    """Sampler of one pool; any thread may read `report`."""

    def __init__(
        self,
        status: Callable[[], PoolStatus],
        activity: Activity,
        health: Mapping[str, bool],
        exits: Mapping[str, int],
        workers: int,
        living: Callable[[], Sequence[WorkerInfo]],
        models: Callable[[], Sequence[ModelUsage]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._status = status
        self._activity = activity
        self._health = health
        self._exits = exits
        self._workers = workers
        self._living = living
        self._models = models
        self._clock = clock
        self._began = self._last_look = clock()
        self._last_ended = self._last_rows = 0
        # Each sample has exchanges per second, rows per second, waiting exchanges and busy workers.
        self._samples: deque[tuple[float, float, int, int]] = deque(maxlen=KEPT_SAMPLES)
        self.report = self._look(status())

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            self.sample()

    def sample(self) -> None:
        """Take one sample and update the report."""
        status = self._status()
        now, ended, rows = self._clock(), self._activity.ended, self._activity.transferred().rows
        seconds = max(now - self._last_look, 1e-3)
        exchanges_per_second = round((ended - self._last_ended) / seconds, 2)
        rows_per_second = round((rows - self._last_rows) / seconds, 1)
        self._samples.append((exchanges_per_second, rows_per_second, status.exchanges_waiting, status.workers_busy))
        self._last_look, self._last_ended, self._last_rows = now, ended, rows
        self.report = self._look(status)

    def _look(self, status: PoolStatus) -> Report:
        open_exchanges = self._activity.open
        series = zip(*self._samples, strict=True) if self._samples else ((), (), (), ())
        return Report(
            at=utc_now(),
            host=socket.gethostname(),
            state=PoolState.Name(status.state).removeprefix("POOL_STATE_").lower(),
            uptime_seconds=int(self._clock() - self._began),
            health=dict(self._health),
            versions=Versions(
                status.server_version, status.protocol_version, status.python_version, status.pyspark_version
            ),
            session_functions_allowed=status.session_functions_allowed,
            signatures_required=status.signatures_required,
            sandbox={layer.name: layer.lack for layer in status.sandbox},
            workers=Workers(
                self._workers,
                status.workers_idle,
                status.workers_busy,
                status.workers_starting,
                dict(self._exits),
                self._living()[:SHOWN_WORKERS],
            ),
            queue=Queue(status.exchanges_waiting, status.exchanges_waiting_limit),
            reload_fault=status.reload_fault,
            functions=[
                FunctionRow(each.name, each.version, each.doc, each.owner, each.fault, each.fault_is_final)
                for each in status.functions
            ],
            models=[_model_row(usage) for usage in self._models()],
            exchanges_open=len(open_exchanges),
            exchanges=[_exchange_row(exchange) for exchange in open_exchanges[:SHOWN_EXCHANGES]],
            errors=tuple(reversed(self._activity.failures)),
            rows=self._last_rows,
            history=History(INTERVAL_SECONDS, *series),
        )


def _model_row(usage: ModelUsage) -> ModelRow:
    record = BatchRecord.from_plain(usage.record)
    wait_seconds = record.waits.at_most(0.99)
    return ModelRow(
        name=usage.name,
        version=usage.version,
        processes=[replica._asdict() for replica in usage.replicas],
        loads=usage.loads,
        evictions=usage.evictions,
        deaths=usage.deaths,
        batches=sum(record.batches.counts),
        rows=int(record.batches.total),
        wait_seconds=None if math.isinf(wait_seconds) else wait_seconds,
    )


def _exchange_row(exchange: OpenExchange) -> ExchangeRow:
    transfer = exchange.transfer
    return ExchangeRow(
        identity=exchange.identity,
        phase=exchange.phase.value,
        seconds=round(exchange.seconds, 1),
        batches=transfer.batches,
        received_bytes=transfer.received_bytes,
        sent_bytes=transfer.sent_bytes,
    )
