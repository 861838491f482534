# SPDX-License-Identifier: Apache-2.0
"""What is known of a pool at one moment; `/status.json` is exactly this."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from updraft_server.front.status.activity import Failure
from updraft_server.pool.leases import WorkerInfo


@dataclass(frozen=True, slots=True)
class Versions:
    """What runs here."""

    server: str
    protocol: int
    python: str
    pyspark: str
    """Empty where the pool has none."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers by state, and by what ended those that are gone."""

    configured: int
    idle: int
    busy: int
    starting: int
    exits: Mapping[str, int]
    living: Sequence[WorkerInfo]
    """The first of them."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Exchanges that wait for a worker."""

    waiting: int
    limit: int


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """An exchange in flight."""

    identity: Mapping[str, str]
    """Function and task, as log lines name them."""
    phase: str
    seconds: float
    batches: int
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A batched function and its processes."""

    name: str
    version: str
    processes: Sequence[Mapping[str, str | int]]
    """The fields of `ModelReplica` of each."""
    loads: int
    evictions: int
    deaths: int
    batches: int
    rows: int
    wait_seconds: float | None
    """What 99 of 100 waits for a batch kept to: the bound of a histogram's bucket; None beyond the last one."""

    @property
    def rows_per_batch(self) -> float:
        """On the average; 0 before the first batch."""
        return self.rows / self.batches if self.batches else 0.0


@dataclass(frozen=True, slots=True)
class History:
    """The last minutes, the oldest first; a value for each interval."""

    interval_seconds: float
    exchanges_per_second: Sequence[float]
    rows_per_second: Sequence[float]
    waiting: Sequence[int]
    busy: Sequence[int]


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A registered function."""

    name: str
    version: str
    doc: str
    owner: str
    fault: str
    """Why it cannot be called, or what was wrong with its last calls; empty while all is well."""
    fault_is_final: bool
    """With a fault: whether every call is refused until the pool has loaded its functions again."""


@dataclass(frozen=True, slots=True)
class Report:
    """A pool at one moment."""

    at: str
    """UTC, as ISO 8601 writes it."""
    host: str
    state: str
    uptime_seconds: int
    """Of the front: one that was replaced begins anew."""
    health: Mapping[str, bool]
    """What grpc.health.v1 says for each name."""
    versions: Versions
    session_functions_allowed: bool
    signatures_required: bool
    """Whether session functions are refused that no driver has signed."""
    sandbox: Mapping[str, str]
    """Each layer of the workers' sandbox, and why it is off; empty while it is on."""
    workers: Workers
    queue: Queue
    reload_fault: str
    """Why the pool refused the last reload, while the older functions serve on; empty otherwise."""
    functions: Sequence[FunctionRow]
    models: Sequence[ModelRow]
    """Of the functions that are batched."""
    exchanges_open: int
    exchanges: Sequence[ExchangeRow]
    """The oldest of them."""
    errors: Sequence[Failure]
    """The newest first."""
    history: History

    def to_json(self) -> bytes:
        """The report as a JSON object."""
        return json.dumps(asdict(self)).encode()
