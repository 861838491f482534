# SPDX-License-Identifier: Apache-2.0
"""Which alerts fire for what pods report: Prometheus' own tool evaluates the rules of a release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.chart.chart import alert_rules

_POOL = "air-updraft-pool-default-6d47d8c74f-4b5zr"
_OTHER = "air-updraft-pool-default-6d47d8c74f-9xk2p"
_WRITER = "air-updraft-writer-5c9d7f6b8-abcde"
_GIB = 1024**3
_UP = {_POOL: "1x40", _OTHER: "1x40", _WRITER: "1x40"}


def _up(**values: str) -> dict[str, str]:
    """`up` of each pod: everything is well but for these."""
    pods = {
        **_UP,
        **{{"pool": _POOL, "other": _OTHER, "writer": _WRITER}[name]: value for name, value in values.items()},
    }
    return {f'up{{namespace="data",pod="{pod}"}}': value for pod, value in pods.items() if value}


def _reported(metric: str, value: str, labels: str = "", pod: str = _POOL) -> dict[str, str]:
    return {f'{metric}{{namespace="data",pod="{pod}"{labels}}}': value}


@pytest.mark.parametrize(
    ("alert", "series", "fires"),
    [
        ("UpdraftIsDown", _up(), 0),
        ("UpdraftIsDown", _up(pool="0x40"), 0),
        ("UpdraftIsDown", _up(pool="0x40", other="0x40"), 1),
        ("UpdraftIsDown", _up(pool="", other=""), 1),
        ("UpdraftIsDown", {}, 2),
        # A pod of another pool, whose name begins alike.
        ("UpdraftIsDown", {**_up(pool="", other=""), **_reported("up", "1x40", pod=_POOL.replace("lt-", "lt-b-"))}, 1),
        ("UpdraftPodIsDown", _up(), 0),
        ("UpdraftPodIsDown", _up(pool="0x40"), 1),
        ("UpdraftFunctionIsUnhealthy", _reported("updraft_functions_unhealthy", "0x40", ',function="price"'), 0),
        ("UpdraftFunctionIsUnhealthy", _reported("updraft_functions_unhealthy", "1x40", ',function="price"'), 1),
        (
            "UpdraftWorkersRunOutOfMemory",
            _reported("updraft_workers_out_of_memory_total", "0x40", ',limit="worker"'),
            0,
        ),
        (
            "UpdraftWorkersRunOutOfMemory",
            _reported("updraft_workers_out_of_memory_total", "0+1x40", ',limit="pool"'),
            1,
        ),
        ("UpdraftScratchIsFull", _reported("updraft_workers_scratch_bytes", f"{7 * _GIB}x40"), 0),
        ("UpdraftScratchIsFull", _reported("updraft_workers_scratch_bytes", f"{9 * _GIB}x40"), 1),
        # The default limit of artifacts is eight tenths.
        ("UpdraftFrontScratchIsFull", _reported("updraft_artifact_store_bytes", f"{8 * _GIB}x40"), 0),
        ("UpdraftFrontScratchIsFull", _reported("updraft_artifact_store_bytes", f"{9.5 * _GIB:.0f}x40"), 1),
        ("UpdraftServiceRestarts", _reported("process_start_time_seconds", "1000x40", pod=_WRITER), 0),
        ("UpdraftServiceRestarts", _reported("process_start_time_seconds", "1000x20 2200x20", pod=_WRITER), 1),
        ("UpdraftServiceRestarts", _reported("process_start_time_seconds", "1000x20 2200x20"), 1),
        # A pod that takes the place of another, as in an upgrade.
        (
            "UpdraftServiceRestarts",
            {
                **_reported("process_start_time_seconds", "1000x20 stale"),
                **_reported("process_start_time_seconds", "_x20 2200x20", pod=_OTHER),
            },
            0,
        ),
        ("UpdraftCertificateExpires", _reported("updraft_certificate_expiry_timestamp_seconds", f"{8 * 86400}x40"), 0),
        ("UpdraftCertificateExpires", _reported("updraft_certificate_expiry_timestamp_seconds", f"{6 * 86400}x40"), 1),
        ("UpdraftCertificateExpires", _reported("updraft_certificate_expiry_timestamp_seconds", "0x40"), 1),
        ("UpdraftCallsAreRefused", _reported("updraft_calls_refused_total", "5x40"), 0),
        ("UpdraftCallsAreRefused", _reported("updraft_calls_refused_total", "0+5x40"), 1),
    ],
)
def test_an_alert_fires_for_what_it_says(alert: str, series: dict[str, str], fires: int, tmp_path: Path) -> None:
    rules = [rule for rule in alert_rules() if rule["alert"] == alert]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "updraft", "rules": rules}]}))
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in (series or {"other": "1x40"}).items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": "30m",
                "exp_samples": [{"labels": "{}", "value": fires}] if fires else [],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [test]}))
    ran = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
