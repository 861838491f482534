# SPDX-License-Identifier: Apache-2.0
"""Metrics of model processes, by function, as the zygote last measured them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from updraft_server.ipc.batch_record import BatchRecord, Counts
from updraft_server.ipc.model_packets import ModelUsage

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
