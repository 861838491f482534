# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of the writer, all prefixed updraft_writer_."""

from collections.abc import Callable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from updraft.service.telemetry import CountsCollector, log_drops_collector

_SECONDS_BUCKETS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class WriterMetrics:
    """All metrics of one writer and the registry that holds them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        registry.register(log_drops_collector("updraft_writer_log_lines_dropped"))
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self.files = counter(
            "updraft_writer_files_total",
            "Files that ended, by format, encoder and outcome.",
            ["format", "encoder", "outcome"],
        )
        self.encoder_reasons = counter(
            "updraft_writer_encoder_reasons_total",
            "Files that were finished, by why they were encoded where they were: gpu, or what kept them on the CPU.",
            ["reason"],
        )
        self.file_seconds = histogram(
            "updraft_writer_file_seconds",
            "Duration of an exchange, from its first message to its status.",
            ["format"],
            buckets=_SECONDS_BUCKETS,
        )
        self.admission_seconds = histogram(
            "updraft_writer_admission_wait_seconds",
            "Time that a batch waited for room.",
            buckets=_SECONDS_BUCKETS,
        )
        self.raw_bytes = counter("updraft_writer_raw_bytes_total", "Bytes of batches taken.")
        self.stored_bytes = counter("updraft_writer_stored_bytes_total", "Encoded bytes stored.")
        self.rows = counter("updraft_writer_rows_total", "Rows of files that were finished.")
        self.encode_seconds = counter("updraft_writer_encode_seconds_total", "Time of encoder threads.")
        self.store_seconds = counter("updraft_writer_store_seconds_total", "Time of pieces on their way to storage.")

    def count_by_label(self, name: str, doc: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        """Add a counter with one series for each key of `counts`, which is called at each scrape."""
        self.registry.register(CountsCollector(name, doc, label, counts))

    def watch(self, name: str, doc: str, value: Callable[[], float]) -> None:
        """Add a gauge that is read from `value` at each scrape."""
        Gauge(name, doc, registry=self.registry).set_function(value)
