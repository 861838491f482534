# SPDX-License-Identifier: Apache-2.0
"""Metrics of the front's exchanges. The other parts of the front add their own (`show_in`)."""

from updraft.service.metrics import Metrics
from updraft_server.front.status.activity import Activity
from updraft_server.front.status.applications import Applications


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
