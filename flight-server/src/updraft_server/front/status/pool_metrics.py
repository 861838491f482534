# SPDX-License-Identifier: Apache-2.0
"""Metrics of a pool: its workers, the causes of their ends, their sandbox, and the last measurement of its models."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from updraft.service.metrics import Metrics
from updraft_server.ipc.batch_record import BatchRecord, Counts
from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.pool.interface import WorkerPool
from updraft_server.sandbox_layers import NEEDS


class HealingTime:
    """Observer of the seconds from when a complete pool loses a worker until it is complete again."""

    def __init__(
        self, wanted: int, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wanted = wanted
        self._observe = observe
        self._clock = clock
        self._was_whole = False
        self._lost_at: float | None = None

    def workers_are(self, warm: int) -> None:
        """Record how many workers are warm now, and observe the healing time once enough workers are warm again."""
        if warm >= self._wanted:
            if self._lost_at is not None:
                self._observe(self._clock() - self._lost_at)
            self._was_whole, self._lost_at = True, None
        elif self._was_whole and self._lost_at is None:
            self._lost_at = self._clock()


def watch_pool(metrics: Metrics, pool: WorkerPool, *, wanted_workers: int) -> None:
    """Add the pool's metrics; the pool is healing while it has fewer than `wanted_workers`."""
    metrics.watch_by_label(
        "updraft_workers",
        "Workers of the pool, by state; fresh ones are kept ready for new owners, beyond --workers; busy ones have an "
        "exchange or still compute after it.",
        "state",
        lambda: {"idle": pool.quiet, "busy": pool.computing, "starting": pool.starting, "fresh": pool.fresh},
    )
    metrics.watch_by_label(
        "updraft_pool_sandbox_layer",
        "Layers of the workers' sandbox: 1 where every worker has it, 0 where the kernel lacks it.",
        "layer",
        lambda: {name: has_layer(pool, name) for name in NEEDS},
    )
    metrics.watch(
        "updraft_workers_memory_bytes",
        "Resident memory of all workers and what they have started, as last measured.",
        lambda: sum(worker.memory_bytes or 0 for worker in pool.workers),
    )
    metrics.watch(
        "updraft_workers_scratch_bytes",
        "Temporary files of all workers on the disk, as last measured.",
        lambda: sum(worker.scratch_bytes or 0 for worker in pool.workers),
    )
    metrics.count_by_label(
        "updraft_worker_exits",
        "Workers that ended, by what ended them: signal, exit, pool; leftover: the pool, because of what an exchange "
        "had left behind.",
        "reason",
        lambda: pool.exits,
    )
    metrics.registry.register(ModelsCollector(lambda: pool.model_usage))
    healing_seconds = metrics.seconds(
        "updraft_healing_seconds", "Time from the loss of a worker until all are warm again."
    )
    healing = HealingTime(wanted_workers, healing_seconds.observe)
    # Include fresh workers: if one replaces a lost worker, the pool is complete only after it has started a new fresh
    # one.
    pool.subscribe(lambda: healing.workers_are(pool.idle + pool.busy + pool.fresh))


def has_layer(pool: WorkerPool, name: str) -> bool:
    """Return whether every worker of the pool has this layer of the sandbox."""
    return any(layer.is_on for layer in pool.sandbox if layer.name == name)


_LABELS = ["function", "version"]


class ModelsCollector(Collector):
    """Collector of the metrics of one pool's model processes."""

    def __init__(self, usage: Callable[[], Sequence[ModelUsage]]) -> None:
        self._usage = usage

    def collect(self) -> Iterator[Metric]:
        """Yield the current metric families."""
        rows = HistogramMetricFamily(
            "updraft_model_batch_rows", "Rows in each batch that a batched function got.", labels=_LABELS
        )
        waits = HistogramMetricFamily(
            "updraft_model_wait_seconds",
            "Time from the moment when a worker sent rows until a batched function got the first of them.",
            labels=_LABELS,
        )
        loads = CounterMetricFamily(
            "updraft_model_loads", "Processes that have loaded a batched function.", labels=_LABELS
        )
        evictions = CounterMetricFamily(
            "updraft_model_evictions",
            "Processes of a batched function that made room for another function's (--model-memory-bytes).",
            labels=_LABELS,
        )
        deaths = CounterMetricFamily(
            "updraft_model_deaths",
            "Processes of a batched function that crashed, were ended for what they took, or could not load it.",
            labels=_LABELS,
        )
        memory = GaugeMetricFamily(
            "updraft_model_memory_bytes",
            "Memory of a batched function's processes, above what the image of all workers has.",
            labels=_LABELS,
        )
        processes = GaugeMetricFamily(
            "updraft_model_processes", "Processes of a batched function, by state.", labels=[*_LABELS, "state"]
        )
        for each in self._usage():
            labels = [each.name, each.version]
            record = BatchRecord.from_plain(each.record)
            for family, counts in ((rows, record.batches), (waits, record.waits)):
                family.add_metric(labels, _buckets(counts), counts.total)
            loads.add_metric(labels, each.loads)
            evictions.add_metric(labels, each.evictions)
            deaths.add_metric(labels, each.deaths)
            memory.add_metric(labels, sum(replica.memory_bytes for replica in each.replicas))
            for state in ("loading", "ready", "retiring"):
                processes.add_metric([*labels, state], sum(replica.state == state for replica in each.replicas))
        yield from (rows, waits, loads, evictions, deaths, memory, processes)


def _buckets(counts: Counts) -> list[tuple[str, float]]:
    bounds = [*map(str, map(float, counts.bounds)), "+Inf"]
    return list(zip(bounds, accumulate(counts.counts), strict=True))
