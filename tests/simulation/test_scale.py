# SPDX-License-Identifier: Apache-2.0
"""Parts of docs/scale.md at a small size: the load has the intended size, and the cluster recovers from an outage."""

from __future__ import annotations

import re

import pytest

from tests.simulation.client.recovery import Recovery
from tests.simulation.client.replicas import Replicas
from tests.simulation.scale import one_pool
from tests.simulation.scale.measured import CLIENTS, WORKERS, simulated
from tests.simulation.scale.scenarios import EVENT_SECONDS, SCENARIOS, simulate
from tests.support.paths import REPOSITORY


def test_the_page_shows_a_simulation_within_15_percent_of_the_measured_system() -> None:
    page = (REPOSITORY / "docs/scale.md").read_text()
    rows = re.findall(
        r"^\| (?:exchanges a second|median wait, seconds|99 % wait, seconds) \|.*\| (.*) % \|$", page, re.M
    )
    assert len(rows) == 3
    assert all(abs(float(difference)) <= 15.0 for difference in rows)


def test_busy_workers_bound_the_throughput_and_the_rest_of_the_clients_wait() -> None:
    figures = simulated(20.0, overhead_seconds=0.0)
    # A nap takes 0.3 seconds on average.
    assert abs(figures.exchanges_per_second * 0.3 / WORKERS - 1) < 0.03
    assert abs(figures.median_wait_seconds / (0.3 * (CLIENTS / WORKERS - 1)) - 1) < 0.1


def _throughput_after_a_zone_came_back() -> float:
    """Return the throughput two minutes after the pods came back, as a share of the throughput before the outage."""
    zone = next(scenario for scenario in SCENARIOS if scenario.name == "zone")
    outcome = simulate(zone, scale=0.03, seconds=EVENT_SECONDS + 180)
    minute = [each for each in outcome.bins if 120 <= each.begin - EVENT_SECONDS < 180]
    return sum(each.throughput for each in minute) / len(minute) / outcome.before().throughput


def test_pods_that_come_back_take_their_share_and_not_all_calls() -> None:
    assert _throughput_after_a_zone_came_back() > 0.8


def test_new_pods_first_is_a_planted_bug_that_leaves_other_pods_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replicas, "_rank_among", lambda replicas, _ranks: replicas._first_use())
    _wait_at_the_first_pod(monkeypatch)
    assert _throughput_after_a_zone_came_back() < 0.7


def _wait_at_the_first_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make exchanges wait at a busy pod at once, as at a pool that does not support `refuse_if_busy`."""
    monkeypatch.setattr(Recovery, "may_try_elsewhere", False)


def test_exchanges_that_ask_other_pods_find_free_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    churn = next(scenario for scenario in SCENARIOS if scenario.name == "churn")
    asks = simulate(churn, scale=0.03, seconds=EVENT_SECONDS).before()
    _wait_at_the_first_pod(monkeypatch)
    waits = simulate(churn, scale=0.03, seconds=EVENT_SECONDS).before()
    assert asks.p99_wait < waits.p99_wait / 3
    assert asks.throughput > 0.9 * waits.throughput


def test_a_short_queue_of_one_pool_fails_long_tasks_and_the_default_fails_none() -> None:
    assert one_pool.simulate("a minute", 256, seconds=700.0).failed == 0
    assert one_pool.simulate("a minute", 4, seconds=700.0).failed > 0


def test_a_cluster_takes_on_its_load_after_an_outage_and_no_exchange_fails() -> None:
    outage = next(scenario for scenario in SCENARIOS if scenario.name == "outage")
    outcome = simulate(outage, scale=0.01)
    assert outcome.failed == 0
    outage_bins = [each for each in outcome.bins if 10 <= each.begin - EVENT_SECONDS < 50]
    assert min(each.throughput for each in outage_bins) == 0.0
    assert outcome.bins[-1].throughput > 0.5 * outcome.before().throughput
