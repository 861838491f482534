# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of a service: a registry, and the ways to add a metric to it.

A part of a service adds its own metrics in a method `show_in(metrics)`. Values that exist anyway are read at each
scrape, so they cost nothing on the hot path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from updraft.service.telemetry import LOG_DROPS

_SECONDS_BUCKETS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """Metrics of one service."""

    def __init__(self, prefix: str) -> None:
        """Create the registry and count dropped log lines; `prefix` begins the names of metrics that services share."""
        self.prefix = prefix
        self.registry = CollectorRegistry()
        self.count_by_label(
            f"{prefix}_log_lines_dropped",
            "Log lines dropped, by reason: unread (the reader of stderr is too slow), failed (writing it failed), "
            "flood (a function prints more than its exchange may log).",
            "reason",
            lambda: LOG_DROPS.lines,
        )

    def counter(self, name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
        """Add a counter."""
        return Counter(name, doc, labels, registry=self.registry)

    def seconds(self, name: str, doc: str, labels: Sequence[str] = ()) -> Histogram:
        """Add a histogram of durations, from 5 ms to half an hour."""
        return Histogram(name, doc, labels, registry=self.registry, buckets=_SECONDS_BUCKETS)

    def gauge(self, name: str, doc: str) -> Gauge:
        """Add a gauge."""
        return Gauge(name, doc, registry=self.registry)

    def watch(self, name: str, doc: str, value: Callable[[], float]) -> None:
        """Add a gauge that is read from `value` at each scrape."""
        self.gauge(name, doc).set_function(value)

    def watch_by_label(self, name: str, doc: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        """Add a gauge with one series for each key of `values`, which is called at each scrape."""
        self.registry.register(_FamilyCollector(GaugeMetricFamily, name, doc, label, values))

    def count_by_label(self, name: str, doc: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        """Add a counter with one series for each key of `counts`, which is called at each scrape."""
        self.registry.register(_FamilyCollector(CounterMetricFamily, name, doc, label, counts))


class _FamilyCollector(Collector):
    """Metric whose label values are known only at a scrape."""

    def __init__(
        self,
        family: type[CounterMetricFamily | GaugeMetricFamily],
        name: str,
        doc: str,
        label: str,
        values: Callable[[], Mapping[str, float]],
    ) -> None:
        self._family = family
        self._described = (name, doc)
        self._label = label
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """Yield the metric as it is now."""
        family = self._family(*self._described, labels=[self._label])
        for value, amount in dict(self._values()).items():
            family.add_metric([value], amount)
        yield family
