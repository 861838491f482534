# SPDX-License-Identifier: Apache-2.0
"""The front's Prometheus metrics, all prefixed updraft_."""

import functools
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from updraft.service.telemetry import CountsCollector, log_drops_collector
from updraft_server.front.status.activity import Activity
from updraft_server.front.status.applications import Applications

_SECONDS_BUCKETS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class FrontMetrics:
    """All metrics of one front and the registry that holds them."""

    def __init__(self, activity: Activity) -> None:
        self.registry = CollectorRegistry()
        seconds = functools.partial(Histogram, buckets=_SECONDS_BUCKETS, registry=self.registry)
        self.registry.register(log_drops_collector("updraft_log_lines_dropped"))
        self.count_by_label(
            "updraft_flight_bytes",
            "Bytes of Flight messages relayed.",
            "direction",
            lambda: activity.transferred().bytes_by_direction,
        )
        self.count_by_label(
            "updraft_flight_messages",
            "Flight messages relayed.",
            "direction",
            lambda: activity.transferred().messages_by_direction,
        )
        self.applications = Applications(lambda: activity.open)
        self.registry.register(self.applications)
        self.exchanges = Counter(
            "updraft_exchanges_total",
            "Exchanges that ended, by outcome.",
            ["function", "outcome"],
            registry=self.registry,
        )
        self.exchange_seconds = seconds(
            "updraft_exchange_seconds", "Duration of an exchange, from its first message to its status.", ["function"]
        )
        self.rows = Counter(
            "updraft_rows_total",
            "Rows of exchanges that ended well, as their clients count them.",
            ["function"],
            registry=self.registry,
        )
        self.batch_seconds = seconds(
            "updraft_batch_seconds",
            "Time for which an exchange held its worker, for each of its batches.",
            ["function"],
        )
        self.wait_seconds = seconds("updraft_admission_wait_seconds", "Time that an exchange waited for a worker.")
        self.running = Gauge("updraft_exchanges_running", "Exchanges that hold a worker.", registry=self.registry)
        self.worker_deaths = Counter(
            "updraft_worker_deaths_total", "Workers that died while they held an exchange.", registry=self.registry
        )
        self.held_back = Counter(
            "updraft_exchanges_held_back_total",
            "Exchanges that were refused because their function, or whoever brings it, keeps killing workers.",
            registry=self.registry,
        )
        self.healing_seconds = seconds(
            "updraft_healing_seconds", "Time from the loss of a worker until all are warm again."
        )

    def watch(self, name: str, doc: str, value: Callable[[], float]) -> None:
        """Add a gauge that is read from `value` at each scrape."""
        Gauge(name, doc, registry=self.registry).set_function(value)

    def watch_by_label(self, name: str, doc: str, label: str, values: dict[str, Callable[[], float]]) -> None:
        """Add a gauge with one series for each label value."""
        gauge = Gauge(name, doc, [label], registry=self.registry)
        for label_value, value in values.items():
            gauge.labels(label_value).set_function(value)

    def watch_all(self, name: str, doc: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        """Add a gauge with one series for each key of `values`, which is called at each scrape."""
        self.registry.register(_GaugesCollector(name, doc, label, values))

    def count_by_label(self, name: str, doc: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        """Add a counter with one series for each key of `counts`, which is called at each scrape."""
        self.registry.register(CountsCollector(name, doc, label, counts))


class _GaugesCollector(Collector):
    """A gauge whose label's values are known at a scrape alone."""

    def __init__(self, name: str, doc: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        self._family = (name, doc, label)
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """The gauge, as it is now."""
        name, doc, label = self._family
        family = GaugeMetricFamily(name, doc, labels=[label])
        for label_value, value in self._values().items():
            family.add_metric([label_value], value)
        yield family
