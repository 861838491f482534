# SPDX-License-Identifier: Apache-2.0
"""A small part of what docs/scale.md shows: the load is what it should be, and an outage ends."""

from __future__ import annotations

from tests.simulation.scale.measured import CLIENTS, WORKERS, simulated
from tests.simulation.scale.scenarios import SCENARIOS, simulate


def test_busy_workers_bound_the_throughput_and_the_rest_of_the_clients_wait() -> None:
    figures = simulated(20.0, overhead_seconds=0.0)
    # A nap takes 0.3 seconds on average.
    assert abs(figures.exchanges_per_second * 0.3 / WORKERS - 1) < 0.03
    assert abs(figures.median_wait_seconds / (0.3 * (CLIENTS / WORKERS - 1)) - 1) < 0.1


def test_pods_that_come_back_take_their_share_and_not_all_calls() -> None:
    zone = next(scenario for scenario in SCENARIOS if scenario.name == "zone")
    outcome = simulate(zone, scale=0.03)
    last = outcome.bins[-6:]
    assert sum(each.throughput for each in last) / len(last) > 0.8 * outcome.before().throughput


def test_a_cluster_takes_on_its_load_after_an_outage_and_no_exchange_fails() -> None:
    outage = next(scenario for scenario in SCENARIOS if scenario.name == "outage")
    outcome = simulate(outage, scale=0.01)
    assert outcome.failed == 0
    assert min(each.throughput for each in outcome.bins[19:23]) == 0.0
    assert outcome.bins[-1].throughput > 0.5 * outcome.before().throughput
