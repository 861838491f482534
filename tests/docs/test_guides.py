# SPDX-License-Identifier: Apache-2.0
"""Commands and values of the guides work: the chart accepts the values, the commands have the options."""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from pydantic_settings import CliSettingsSource

from tests.chart.chart import CHART, render
from tests.support.paths import REPOSITORY
from updraft.service.identities_file import parse_identities
from updraft_cli.main import Updraft

# tests/chart/test_gitops.py reads the manifests.
_YAML = re.compile(r"^```yaml\n(?!apiVersion)(.*?)^```", re.MULTILINE | re.DOTALL)
_TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:    |\$ )((?:updraft|helm) .*)$", re.MULTILINE)
_INSTALL = re.compile(r"^(?:    |\$ )pip install (?!.*--target)(.*?)(?:  #.*)?$", re.MULTILINE)
_GUIDES = [*sorted((REPOSITORY / "docs/guides").glob("*.md")), REPOSITORY / "docs/functions.md"]
_PAGES = [*_GUIDES, CHART / "README.md"]
_INSTALL_PAGES = [*_GUIDES, *(REPOSITORY / page for page in ("README.md", "gpu-writer/README.md"))]


def _found(pattern: re.Pattern[str], pages: list[Path]) -> list[object]:
    return [
        pytest.param(text, id=f"{page.stem}: {text[:40]}")
        for page in pages
        for text in pattern.findall(page.read_text())
    ]


def test_the_identities_of_the_guide_are_a_file_that_services_take() -> None:
    text = "".join(_TOML.findall((REPOSITORY / "docs/guides/tenants.md").read_text()))
    found = parse_identities(text.encode())
    assert (len(found.by_digest), len(found.by_certificate), len(found.issuers)) == (1, 1, 2)
    assert found.issuers[1].tenants_of_subjects
    assert found.caps


def test_a_table_says_who_needs_which_way_to_a_pool() -> None:
    table = (REPOSITORY / "docs/which-part.md").read_text().partition("\n## ")[0]
    for way in ("`local_pool`", "`updraft serve MODULE`", "`make pool`", "`updraft-server serve`", "the chart"):
        assert re.search(rf"^\| .*\[{re.escape(way)}\]\(", table, re.MULTILINE), way


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("install", "This page is about Kubernetes."),
        ("laptop", "This is untried on macOS and Windows"),
        ("notebook", "You need Linux ([macOS or Windows](laptop.md))"),
    ],
)
def test_a_guide_says_at_its_beginning_where_it_holds(page: str, says: str) -> None:
    beginning = (REPOSITORY / f"docs/guides/{page}.md").read_text().partition("\n## ")[0]
    assert says in " ".join(beginning.split())


@pytest.mark.parametrize("values", _found(_YAML, _GUIDES))
def test_the_chart_accepts_the_values_of_a_guide(values: str) -> None:
    assert render(yaml.safe_load(values)).all("Deployment")


@pytest.mark.parametrize("command", [*_found(_COMMAND, _PAGES)])
def test_a_command_of_a_guide_can_be_typed(command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "updraft":
        CliSettingsSource(Updraft, cli_parse_args=False).root_parser.parse_args(arguments)
        return
    assert all((REPOSITORY / argument).exists() for argument in arguments if "/" in argument and "=" not in argument)
    render(_set([value for option, value in itertools.pairwise(arguments) if option == "--set"]))


def test_a_command_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(SystemExit):
        test_a_command_of_a_guide_can_be_typed("updraft drain POD --gently")


@pytest.mark.parametrize("arguments", _found(_INSTALL, _INSTALL_PAGES))
def test_a_guide_installs_every_distribution_of_ours_that_it_needs(arguments: str) -> None:
    """Our distributions are not on PyPI: their names there belong to somebody else, or may one day."""
    if "dist/updraft_*.whl" in arguments:
        # tests/dist installs all of these wheels. Their own requirements are enough for a user.
        assert "--constraint" not in arguments
        return
    folders = [REPOSITORY / argument.partition("[")[0] for argument in shlex.split(arguments)]
    projects = [tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in folders]
    needs = (need.partition("[")[0] for project in projects for need in project["dependencies"])
    needed = {need for need in needs if need.startswith("updraft")}
    assert needed <= {project["name"] for project in projects}


def _set(pairs: list[str]) -> dict[str, object]:
    """Return values as `--set a.b=c` makes them."""
    values: dict[str, object] = {}
    for pair in pairs:
        path, _, value = pair.partition("=")
        *parents, last = path.split(".")
        place: dict[str, object] = values
        for parent in parents:
            inner = place.setdefault(parent, {})
            assert isinstance(inner, dict)
            place = inner
        place[last] = {"true": True, "false": False}.get(value, value)
    return values
