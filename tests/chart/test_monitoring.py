# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboards query metrics that the services really export, and every alert has a runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import promql_parser
import pytest
import yaml
from running_writer import running_writer

from tests.chart.chart import CHART, render
from tests.docs.markdown import Page
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from tests.support.web import fetched

_PARTS_OF_A_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")
_ALERTS: list[dict[str, str]] = yaml.safe_load((CHART / "alerts.yaml").read_text())
_DASHBOARDS = [json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))]


def _queries() -> list[tuple[str, str]]:
    found = [(alert["alert"], alert["expr"]) for alert in _ALERTS]
    for board in _DASHBOARDS:
        for panel in board["panels"]:
            found += [(panel["title"], target["expr"]) for target in panel["targets"]]
    return found


def _metrics(query: str) -> set[str]:
    """The metrics in a query; raises ValueError if it is not PromQL."""
    names: set[str] = set()

    def note(expression: promql_parser.Expr) -> bool:
        if isinstance(expression, promql_parser.VectorSelector) and expression.name:
            names.add(expression.name)
        return True

    promql_parser.walk(promql_parser.parse(query.replace("$__rate_interval", "5m")), note)
    return names


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The metric families that a real pool and a real writer export."""
    with (
        LocalPool(workers=1) as pool,
        running_writer(tmp_path_factory.mktemp("files"), metrics_listen="127.0.0.1:0") as writer,
    ):
        writers, _ = fetched(f"http://{writer.settings.metrics_listen}/metrics")
        yield _families(pool.page("/metrics")[0]) | _families(writers)


def _families(page: str) -> set[str]:
    lines = page.splitlines()
    return {line.split()[2] for line in lines if line.startswith("# TYPE")}


@pytest.mark.parametrize("query", [query for _, query in _queries()], ids=[asked_by for asked_by, _ in _queries()])
def test_the_metrics_of_a_query_are_exported(query: str, exported: set[str]) -> None:
    asked = {_PARTS_OF_A_HISTOGRAM.sub("", name) for name in _metrics(query)}
    assert asked
    assert asked <= exported


def test_a_metric_that_nobody_exports_would_be_found(exported: set[str]) -> None:
    assert _metrics("rate(updraft_invented_total[5m])") == {"updraft_invented_total"}
    assert "updraft_invented_total" not in exported


@pytest.mark.parametrize("alert", [alert["alert"] for alert in _ALERTS])
def test_every_alert_has_a_runbook(alert: str) -> None:
    assert alert.lower() in Page(REPOSITORY / "docs/runbooks.md").anchors


def test_alerts_are_a_rule_with_links_to_runbooks() -> None:
    values = {"monitoring": {"rules": True, "runbooks": "https://wiki.example/updraft", "labels": {"release": "prom"}}}
    rule = render(values).one("PrometheusRule", "air-updraft")
    (group,) = rule["spec"]["groups"]
    assert [alert["expr"] for alert in group["rules"]] == [alert["expr"] for alert in _ALERTS]
    assert group["rules"][0]["annotations"]["runbook_url"] == "https://wiki.example/updraft#updraftpoolhasnoworkers"
    assert rule["metadata"]["labels"]["release"] == "prom"


def test_dashboards_are_config_maps_for_grafanas_sidecar() -> None:
    maps = render({"monitoring": {"dashboards": True}}).all("ConfigMap")
    assert [json.loads(text) for found in maps for text in found["data"].values()] == _DASHBOARDS
    assert all(found["metadata"]["labels"]["grafana_dashboard"] == "1" for found in maps)


def test_monitoring_resources_are_off_by_default() -> None:
    release = render()
    assert not release.all("PrometheusRule") + release.all("PodMonitor") + release.all("ConfigMap")
