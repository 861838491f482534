# SPDX-License-Identifier: Apache-2.0
"""Report on a pool at one moment; `/status.json` has exactly these fields."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from updraft_server.front.status.activity import Failure
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
    """Workers by state, and ended workers by what ended them."""

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
    history: History

    def to_json(self) -> bytes:
        """Return the report as a JSON object."""
        return json.dumps(asdict(self)).encode()
