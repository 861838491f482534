# SPDX-License-Identifier: Apache-2.0
"""Metrics of the front's exchanges, also in Spark's terms: by application and, for exchanges in flight, by stage.

Other parts of the front add their own metrics (`show_in`).
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from updraft.service.metrics import Metrics
from updraft_server.front.relay.transfer import Transfer
from updraft_server.front.status.activity import Activity, OpenExchange


class FrontMetrics(Metrics):
    """Metrics of one front."""

    def __init__(self, activity: Activity) -> None:
        super().__init__("updraft")
        self.count_by_label(
            "updraft_flight_bytes",
            "Bytes of Flight messages relayed.",
            "direction",
            lambda: activity.transferred().bytes_by_direction,
        )
        self.count_by_label(
            "updraft_segment_bytes",
            "Bytes of Flight messages that passed through segments; updraft_flight_bytes includes them.",
            "direction",
            lambda: activity.transferred().segment_bytes_by_direction,
        )
        self.count_by_label(
            "updraft_flight_messages",
            "Flight messages relayed.",
            "direction",
            lambda: activity.transferred().messages_by_direction,
        )
        self.applications = Applications(lambda: activity.open)
        self.registry.register(self.applications)
        self.exchanges = self.counter(
            "updraft_exchanges_total", "Ended exchanges, by outcome.", ["function", "outcome"]
        )
        self.refused_busy = self.counter(
            "updraft_exchanges_refused_busy_total",
            "Exchanges, without helpers, whose clients wanted to ask another pod because no worker was free.",
        )
        self.exchange_seconds = self.seconds(
            "updraft_exchange_seconds", "Duration of an exchange, from its first message to its status.", ["function"]
        )
        self.rows = self.counter(
            "updraft_rows_total", "Rows of exchanges that succeeded, as their clients count them.", ["function"]
        )
        self.batch_seconds = self.seconds(
            "updraft_batch_seconds",
            "Time for which an exchange held its worker, for each of its batches.",
            ["function"],
        )
        self.wait_seconds = self.seconds("updraft_admission_wait_seconds", "Time that an exchange waited for a worker.")
        self.running = self.gauge("updraft_exchanges_running", "Exchanges that hold a worker.")
        self.worker_deaths = self.counter(
            "updraft_worker_deaths_total", "Workers that died while they held an exchange."
        )
        self.held_back = self.counter(
            "updraft_exchanges_held_back_total",
            "Exchanges refused because their function or its owner keeps killing workers.",
        )


# Clients choose the names of applications. Without this bound, a client could create any number of time series.
KEPT_APPLICATIONS = 100


@dataclass(eq=False, slots=True)
class _Totals:
    outcomes: Counter[str] = field(default_factory=Counter)
    transfer: Transfer = field(default_factory=Transfer)


class Applications(Collector):
    """Counts of the applications whose exchanges ended most recently.

    The front's loop changes the counts, and any thread may read them.
    """

    def __init__(self, in_flight: Callable[[], Sequence[OpenExchange]]) -> None:
        self._in_flight = in_flight
        self._lock = threading.Lock()
        self._totals: OrderedDict[str, _Totals] = OrderedDict()

    def ended(self, identity: Mapping[str, str], outcome: str, transfer: Transfer) -> None:
        """Count an ended exchange if it names an application, as every exchange of Spark does."""
        application = identity.get("application")
        if not application:
            return
        with self._lock:
            totals = self._totals.setdefault(application, _Totals())
            totals.outcomes[outcome] += 1
            totals.transfer.add(transfer)
            self._totals.move_to_end(application)
            if len(self._totals) > KEPT_APPLICATIONS:
                self._totals.popitem(last=False)

    def collect(self) -> Iterator[Metric]:
        """Yield the current metric families."""
        exchanges = CounterMetricFamily(
            "updraft_application_exchanges",
            "Ended exchanges of a Spark application, by outcome.",
            labels=["application", "outcome"],
        )
        rows = CounterMetricFamily(
            "updraft_application_rows",
            "Rows of a Spark application's exchanges that succeeded.",
            labels=["application"],
        )
        size = CounterMetricFamily(
            "updraft_application_bytes",
            "Bytes of messages of a Spark application's exchanges.",
            labels=["application", "direction"],
        )
        with self._lock:
            for application, totals in self._totals.items():
                for outcome, count in totals.outcomes.items():
                    exchanges.add_metric([application, outcome], count)
                rows.add_metric([application], totals.transfer.rows)
                for direction, count in totals.transfer.bytes_by_direction.items():
                    size.add_metric([application, direction], count)
        yield from (exchanges, rows, size, self._stages())

    def _stages(self) -> Metric:
        family = GaugeMetricFamily(
            "updraft_stage_exchanges",
            "Exchanges of a stage in flight, by phase.",
            labels=["application", "stage", "phase"],
        )
        found = Counter(
            (exchange.identity["application"], exchange.identity["stage"], exchange.phase.value)
            for exchange in self._in_flight()
            if "application" in exchange.identity
        )
        for labels, count in found.items():
            family.add_metric(labels, count)
        return family
