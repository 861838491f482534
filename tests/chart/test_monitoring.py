# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboards query metrics that the services really export, and every alert has a runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from running_writer import running_writer

from tests.chart.chart import CHART, alert_rules, render
from tests.docs.markdown import Page
from tests.support.certificates import Authority
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from tests.support.web import fetched

_PARTS_OF_A_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")
_ALERTS: list[dict[str, str]] = yaml.safe_load((CHART / "alerts.yaml").read_text())
# Metrics that Prometheus itself adds for each target.
_PROMETHEUS_OWN = {"up"}
_DASHBOARDS = [json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))]


def _queries() -> list[tuple[str, str]]:
    found = [(rule["alert"], rule["expr"]) for rule in alert_rules()]
    for board in _DASHBOARDS:
        for panel in board["panels"]:
            found += [(panel["title"], target["expr"]) for target in panel["targets"]]
    return found


def _metrics(query: str) -> set[str]:
    """Return the metrics in a query; raise ValueError if it is not PromQL."""
    names: set[str] = set()

    def note(expression: promql_parser.Expr) -> bool:
        if isinstance(expression, promql_parser.VectorSelector) and expression.name:
            names.add(expression.name)
        return True

    promql_parser.walk(promql_parser.parse(query.replace("$__rate_interval", "5m")), note)
    return names


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """Return the metric families that a real pool and a real writer, one with TLS, export."""
    identity = Authority(tmp_path_factory.mktemp("certificates") / "ca").identity("localhost")
    tls: dict[str, Any] = {"tls_certificate_file": identity.certificate, "tls_key_file": identity.key}
    with (
        LocalPool(workers=1) as pool,
        running_writer(tmp_path_factory.mktemp("files"), metrics_listen="127.0.0.1:0", **tls) as writer,
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
    assert asked <= exported | _PROMETHEUS_OWN


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
    assert {alert["alert"] for alert in group["rules"]} == {alert["alert"] for alert in _ALERTS}
    assert group["rules"][0]["annotations"]["runbook_url"] == "https://wiki.example/updraft#updraftisdown"
    assert rule["metadata"]["labels"]["release"] == "prom"


def test_no_placeholder_is_left_in_a_rule() -> None:
    for rule in alert_rules({"pools": {"default": {}, "etl": {}}}):
        text = str(rule).replace("$labels", "").replace("$value", "")
        assert "$" not in text, rule["alert"]


def test_what_can_be_down_altogether_has_a_rule_for_each_pool_and_the_writer() -> None:
    down = [
        rule["expr"] for rule in alert_rules({"pools": {"default": {}, "etl": {}}}) if rule["alert"] == "UpdraftIsDown"
    ]
    names = ("pool-default", "pool-etl", "writer")
    pods = [f'namespace="data",pod=~"air-updraft-{name}-[a-z0-9]+-[a-z0-9]+"' for name in names]
    assert down == [f"absent(up{{{each}}} == 1)" for each in pods]


def test_a_full_scratch_is_one_of_the_pools_own_size() -> None:
    pools = {"default": {}, "etl": {"workers": {"scratchSize": "2.5G"}}}
    full = [rule["expr"] for rule in alert_rules({"pools": pools}) if rule["alert"] == "UpdraftScratchIsFull"]
    assert [expression.rpartition(" ")[2] for expression in full] == [str(10 * 1024**3), "2500000000"]
    release = render({"pools": pools})
    limits = [release.environment(f"air-updraft-pool-{name}")["UPDRAFT_WORKER_SCRATCH_BYTES"] for name in pools]
    assert limits == [str(9 * 1024**3), "2250000000"]


def test_a_fronts_scratch_has_room_for_the_artifacts_that_it_takes() -> None:
    pools = {"default": {}, "etl": {"front": {"scratchSize": "2.5G"}, "workers": {"scratchSize": "1Gi"}}}
    full = [rule["expr"] for rule in alert_rules({"pools": pools}) if rule["alert"] == "UpdraftFrontScratchIsFull"]
    assert [expression.rpartition(" ")[2] for expression in full] == [str(10 * 1024**3), "2500000000"]
    release = render({"pools": pools})
    limits = [
        release.environment(f"air-updraft-pool-{name}", "front")["UPDRAFT_ARTIFACT_STORE_BYTES"] for name in pools
    ]
    assert limits == [str(8 * 1024**3), "2000000000"]
    own = {"pools": {"default": {"front": {"settings": {"artifactStoreBytes": 1 << 30}}}}}
    assert render(own).environment("air-updraft-pool-default", "front")["UPDRAFT_ARTIFACT_STORE_BYTES"] == str(1 << 30)


def test_when_a_certificate_is_about_to_expire_is_the_platforms_to_say() -> None:
    def seconds(**monitoring: Any) -> str:
        values = {"monitoring": {"rules": True, **monitoring}}
        (found,) = (rule["expr"] for rule in alert_rules(values) if rule["alert"] == "UpdraftCertificateExpires")
        return str(found).rpartition(" ")[2]

    assert (seconds(), seconds(certificateExpiryDays=1)) == (str(7 * 86400), "86400")


def test_dashboards_are_config_maps_for_grafanas_sidecar() -> None:
    maps = render({"monitoring": {"dashboards": True}}).all("ConfigMap")
    assert [json.loads(text) for found in maps for text in found["data"].values()] == _DASHBOARDS
    assert all(found["metadata"]["labels"]["grafana_dashboard"] == "1" for found in maps)


def test_monitoring_resources_are_off_by_default() -> None:
    release = render()
    assert not release.all("PrometheusRule") + release.all("PodMonitor") + release.all("ConfigMap")
