# SPDX-License-Identifier: Apache-2.0
"""Settings of the services in the chart's values: each has one place, and the error for any other names it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.chart.chart import CHART, ChartError, render
from updraft_server.chart_values import value_of as value_in_pools
from updraft_server.settings import SeparateWorkersSettings
from updraft_server.settings import ServeSettings as ServerSettings
from updraft_writer.settings import ServeSettings as WriterSettings
from updraft_writer.settings import value_of as value_in_the_writer

_PLACES = yaml.safe_load((CHART / "settings.yaml").read_text())


def _flags(settings: Any) -> set[str]:
    return {name.replace("_", "") for name in settings.model_fields}


def _names(*places: str) -> list[str]:
    return [name.lower() for place in places for name in _PLACES[place]]


def test_every_setting_of_a_pool_has_one_place() -> None:
    pools = _flags(ServerSettings) | _flags(SeparateWorkersSettings) | {"root"}
    assert sorted(_names("front.settings", "workers.settings", "chart")) == sorted(pools)


def test_errors_name_each_setting_by_the_value_that_sets_it() -> None:
    for values, settings in ((value_in_pools, ServerSettings), (value_in_the_writer, WriterSettings)):
        for name in settings.model_fields:
            place, _, setting = str(values(name)).rpartition(".")
            if place.endswith("settings") and setting not in _PLACES["chart"]:
                assert setting in _PLACES[place if place != "settings" else "writer.settings"], name
    release = render({"pools": {"etl-2": {}}})
    assert release.environment("air-updraft-pool-etl-2")["UPDRAFT_CONFIGURED_BY"] == "pools.etl-2"
    assert release.environment("air-updraft-writer")["UPDRAFT_CONFIGURED_BY"] == "writer"


def test_every_setting_of_the_writer_has_one_place() -> None:
    assert set(_names("writer.settings")) == _flags(WriterSettings) - set(_names("chart"))


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"common": {"settings": {"queueLimit": 3}}}, "has no setting queueLimit: set it in front.settings"),
        ({"writer": {"settings": {"queueLimit": 3}}}, "has no setting queueLimit: set it in front.settings"),
        ({"poolDefaults": {"front": {"settings": {"quotaBytes": 3}}}}, "set it in writer.settings"),
        (
            {"pools": {"a": {"front": {"settings": {"batchTimeoutSeconds": 3}}}}},
            "pool-a: .* in workers.settings",
        ),
        ({"pools": {"a": {"workers": {"settings": {"queueLimit": 3}}}}}, "pool-a: .* set it in front.settings"),
        ({"pools": {"a": {"front": {"settings": {"queuelimit": 3}}}}}, "it is not in the reference of settings"),
        ({"pools": {"a": {"workers": {"settings": {"workers": 3}}}}}, "the chart sets it from workers.count"),
        ({"pools": {"a": {"front": {"settings": {"tokenFile": "/x"}}}}}, "the chart sets it from auth"),
        ({"common": {"settings": {"listen": "0.0.0.0:1"}}}, "common.settings.listen cannot be set"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_setting_in_another_place_is_refused(values: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ChartError, match=refusal):
        render(values)


def test_the_narrower_place_wins() -> None:
    values = {
        "common": {"settings": {"allowRemoteDrain": True, "clientSilenceSeconds": 5}},
        "poolDefaults": {"front": {"settings": {"clientSilenceSeconds": 6, "queueLimit": 7}}},
        "pools": {"default": {"front": {"settings": {"allowRemoteDrain": False, "queueLimit": 8}}}},
    }
    pool, writer = (render(values).environment(f"air-updraft-{name}") for name in ("pool-default", "writer"))
    assert (pool["UPDRAFT_ALLOW_REMOTE_DRAIN"], writer["UPDRAFT_ALLOW_REMOTE_DRAIN"]) == ("false", "true")
    assert (pool["UPDRAFT_CLIENT_SILENCE_SECONDS"], writer["UPDRAFT_CLIENT_SILENCE_SECONDS"]) == ("6", "5")
    assert pool["UPDRAFT_QUEUE_LIMIT"] == "8"
