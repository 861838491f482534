# SPDX-License-Identifier: Apache-2.0
"""The front's Prometheus metrics, all prefixed updraft_."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from updraft.service.telemetry import LogDropsCollector
from updraft_server.front.activity import Activity
from updraft_server.front.applications import Applications
from updraft_server.front.transfer import Transfer

_SECONDS_BUCKETS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class FrontMetrics:
    """All metrics of one front and the registry that holds them."""

    def __init__(self, activity: Activity) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(LogDropsCollector("updraft_log_lines_dropped"))
        self.registry.register(_TransferCollector(activity.transferred))
        self.applications = Applications(lambda: activity.open)
        self.registry.register(self.applications)
        self.exchanges = Counter(
            "updraft_exchanges_total",
            "Exchanges that ended, by outcome.",
            ["function", "outcome"],
            registry=self.registry,
        )
        self.exchange_seconds = Histogram(
            "updraft_exchange_seconds",
            "Duration of an exchange, from its first message to its status.",
            ["function"],
            buckets=_SECONDS_BUCKETS,
            registry=self.registry,
        )
        self.rows = Counter(
            "updraft_rows_total",
            "Rows of exchanges that ended well, as their clients count them.",
            ["function"],
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "updraft_batch_seconds",
            "Time for which an exchange held its worker, for each of its batches.",
            ["function"],
            buckets=_SECONDS_BUCKETS,
            registry=self.registry,
        )
        self.wait_seconds = Histogram(
            "updraft_admission_wait_seconds",
            "Time that an exchange waited for a worker.",
            buckets=_SECONDS_BUCKETS,
            registry=self.registry,
        )
        self.running = Gauge("updraft_exchanges_running", "Exchanges that hold a worker.", registry=self.registry)
        self.worker_deaths = Counter(
            "updraft_worker_deaths_total", "Workers that died while they held an exchange.", registry=self.registry
        )
        self.healing_seconds = Histogram(
            "updraft_healing_seconds",
            "Time from the loss of a worker until all are warm again.",
            buckets=_SECONDS_BUCKETS,
            registry=self.registry,
        )

    def watch(self, name: str, doc: str, value: Callable[[], float]) -> None:
        """Add a gauge that is read from `value` at each scrape."""
        Gauge(name, doc, registry=self.registry).set_function(value)

    def watch_by_label(self, name: str, doc: str, label: str, values: dict[str, Callable[[], float]]) -> None:
        """Add a gauge with one series for each label value."""
        gauge = Gauge(name, doc, [label], registry=self.registry)
        for label_value, value in values.items():
            gauge.labels(label_value).set_function(value)

    def count_by_label(self, name: str, doc: str, label: str, counts: Mapping[str, int]) -> None:
        """Add a counter with one series for each key of `counts`, read at each scrape."""
        self.registry.register(_CountsCollector(name, doc, label, counts))


class _CountsCollector(Collector):
    def __init__(self, name: str, doc: str, label: str, counts: Mapping[str, int]) -> None:
        self._family = (name, doc, label)
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        name, doc, label = self._family
        family = CounterMetricFamily(name, doc, labels=[label])
        for value, count in dict(self._counts).items():
            family.add_metric([value], count)
        yield family


class _TransferCollector(Collector):
    def __init__(self, transferred: Callable[[], Transfer]) -> None:
        self._transferred = transferred

    def collect(self) -> Iterator[Metric]:
        transfer = self._transferred()
        size = CounterMetricFamily("updraft_flight_bytes", "Bytes of Flight messages relayed.", labels=["direction"])
        size.add_metric(["received"], transfer.received_bytes)
        size.add_metric(["sent"], transfer.sent_bytes)
        count = CounterMetricFamily("updraft_flight_messages", "Flight messages relayed.", labels=["direction"])
        count.add_metric(["received"], transfer.received_messages)
        count.add_metric(["sent"], transfer.sent_messages)
        yield size
        yield count
