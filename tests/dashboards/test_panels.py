# SPDX-License-Identifier: Apache-2.0
"""No panel stays empty for a job that succeeds, fails, loses a worker and writes; Prometheus accepts every alert."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.chart.chart import CHART, alert_rules
from tests.dashboards.job import Job, asked, watched_job
from tests.dashboards.prometheus import Prometheus

_PANELS = [
    (f"{board['title']}: {panel['title']}: {target['legendFormat']}", target["expr"])
    for board in (json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json")))
    for panel in board["panels"]
    for target in panel["targets"]
]
_ALERTS = [(rule["alert"], rule["expr"]) for rule in alert_rules()]
_QUERIES = {query for _, query in _PANELS}
_ROUNDS = 8


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Prometheus]]:
    with watched_job(tmp_path_factory.mktemp("dashboards")) as watched:
        yield watched


@pytest.fixture(scope="module")
def prometheus(watched: tuple[Job, Prometheus]) -> Prometheus:
    return watched[1]


@pytest.fixture(scope="module")
def answered(watched: tuple[Job, Prometheus]) -> set[str]:
    """The queries that returned a number at some time."""
    job, prometheus = watched
    found: set[str] = set()
    for number in range(_ROUNDS):
        job.run(number)
        job.lose_a_worker()
        found |= {query for query in _QUERIES - found if prometheus.samples(asked(query))}
        if found == _QUERIES:
            break
    return found


@pytest.mark.parametrize("query", [query for _, query in _PANELS], ids=[shown for shown, _ in _PANELS])
def test_every_line_of_a_panel_has_data(answered: set[str], query: str) -> None:
    assert query in answered


@pytest.mark.parametrize("expression", [query for _, query in _ALERTS], ids=[alert for alert, _ in _ALERTS])
def test_prometheus_accepts_every_alert(prometheus: Prometheus, expression: str) -> None:
    prometheus.samples(expression)


def test_a_query_without_data_would_be_found(prometheus: Prometheus) -> None:
    assert prometheus.samples("updraft_invented_total") == []
    with pytest.raises(ValueError, match="parse error"):
        prometheus.samples("sum by (pod (updraft_workers)")
