# SPDX-License-Identifier: Apache-2.0
"""Names in the pages exist: the connector's settings, environment variables, metrics, values of the chart."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import yaml

from tests.chart.chart import CHART
from tests.docs.markdown import repository_pages
from tests.support.paths import REPOSITORY
from updraft.client.connection import ENVIRONMENT_PREFIX as CLIENTS_ENVIRONMENT_PREFIX
from updraft.client.connection import ConnectionOptions
from updraft.service.settings import ENVIRONMENT_PREFIX
from updraft_server.settings import SeparateWorkersSettings
from updraft_server.settings import ServeSettings as ServerSettings
from updraft_writer.settings import ServeSettings as WriterSettings

_CONF = re.compile(r"\bspark\.updraft(?:\.\w+)+")
_VARIABLE = re.compile(rf"\b{ENVIRONMENT_PREFIX}[A-Z_]*[A-Z]\b")
_METRIC = re.compile(r"\bupdraft_[a-z_]+[a-z]\b")
_VALUE = re.compile(r"`((?:common|poolDefaults|front|workers|writer|monitoring|tracing)(?:\.(?!py\b)\w+)+)[`:]")
_PARTS_OF_A_METRIC = re.compile(r"_(bucket|count|sum|total)$")
_SOURCES = ("deploy/cli/src", "flight-server/src", "gpu-writer/src", "proto/python/src")
# The changelog also has names that no longer exist.
_PAGES = [name for name in repository_pages() if name != "CHANGELOG.md"]


@cache
def _sources() -> str:
    """Return the sources of the services and the command, which contain the names of all metrics and packages."""
    files = (file for folder in _SOURCES for file in (REPOSITORY / folder).rglob("*.py"))
    return "\n".join(file.read_text() for file in files)


@cache
def _confs() -> set[str]:
    """Return the connector's settings and their prefixes."""
    confs = _CONF.findall((REPOSITORY / "docs/reference/connector.md").read_text())
    return {conf[:end] for conf in confs for end in [*(dot.start() for dot in re.finditer(r"\.", conf)), None]}


@cache
def _yaml(name: str) -> Any:
    return yaml.safe_load((CHART / name).read_text())


# The fields below these are Kubernetes' own.
_FIELDS_OF_KUBERNETES = ("podTemplate", "container", "spec")


def _has(values: Any, path: list[str]) -> bool:
    if not path:
        return True
    below = isinstance(values, dict) and path[0] in values
    return below and (path[0] in _FIELDS_OF_KUBERNETES or _has(values[path[0]], path[1:]))


def _is_value(path: str) -> bool:
    place, _, setting = path.rpartition(".")
    if place in _yaml("settings.yaml"):
        return setting in _yaml("settings.yaml")[place]
    values, first, rest = _yaml("values.yaml"), path.partition(".")[0], path.split(".")[1:]
    own = values["poolDefaults"] if first in ("front", "workers") else values
    return _has(own, path.split(".")) or (first in ("front", "workers", "writer") and _has(values["common"], rest))


def _is_metric(name: str) -> bool:
    """Return whether the sources have the metric, with its name whole or its prefix as a variable."""
    shared = re.sub(r"^updraft_(writer_)?", "prefix}_", name)
    return name in _sources() or f'{shared}"' in _sources()


def _unknown(text: str) -> list[str]:
    commands = (ServerSettings, SeparateWorkersSettings, WriterSettings)
    settings = {name for settings in commands for name in settings.model_fields}
    variables = {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in settings}
    variables |= {f"{CLIENTS_ENVIRONMENT_PREFIX}{name.upper()}" for name in ConnectionOptions.__annotations__}
    unknown = [conf for conf in _CONF.findall(text) if conf not in _confs()]
    unknown += [name for name in _VARIABLE.findall(text) if name not in variables]
    unknown += [name for name in _METRIC.findall(text) if not _is_metric(_PARTS_OF_A_METRIC.sub("", name))]
    return unknown + [path for path in _VALUE.findall(text) if not _is_value(path)]


@pytest.mark.parametrize("name", _PAGES)
def test_every_name_on_a_page_exists(name: str) -> None:
    assert _unknown((REPOSITORY / name).read_text()) == []


@pytest.mark.parametrize(
    "name",
    [
        "spark.updraft.udf.endpont",
        "UPDRAFT_QUEUE_LIMITS",
        "updraft_invented_total",
        "`workers.settings.queueLimit: 3`",
        "`front.workers`",
    ],
)
def test_a_name_that_does_not_exist_would_be_found(name: str) -> None:
    assert _unknown(f"Set {name} to 3.") != []
