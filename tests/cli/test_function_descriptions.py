# SPDX-License-Identifier: Apache-2.0
"""Command `updraft functions describe`: everything about a function, from its pool."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from tests.cli.conftest import Run
from tests.contract.python_clients import flight_table
from tests.support.paths import EXAMPLES, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.writer import LocalWriter

_VERSIONS = """
from updraft import function
from updraft.functions import Batching

@function(batching=Batching())
def model(x: int) -> int: return x

@function(load="zygote", name="untrained")
class Untrained:
    def __init__(self) -> None:
        raise OSError("the weights are missing")

    def __call__(self, x: int) -> int:
        return x

@function(name="unweighted")
class Unweighted:
    def __init__(self) -> None:
        raise OSError("the weights are missing")

    def __call__(self, x: int) -> int:
        return x

@function(name="tax.rate", version="1")
def old(country: str) -> float: return 0.1

@function(name="tax.rate", version="2", on_error="null", deterministic=False)
def new(country: str | None) -> float | None: return 0.2
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    directory = tmp_path_factory.mktemp("modules")
    (directory / "versions.py").write_text(_VERSIONS)
    with (
        mock.patch.dict(os.environ, PYTHONPATH=f"{EXAMPLES}:{directory}"),
        LocalPool(workers=1, arguments=["--functions", "shop,versions"]) as pool,
    ):
        yield pool


def test_a_function_is_described_as_the_guide_shows(shop: LocalPool, updraft: Run) -> None:
    shown = updraft("functions", "describe", "discount", "--endpoint", shop.tcp_endpoint).stdout
    assert shown.startswith("discount(price: double not null, percent: double not null = 10.0) -> double not null\n")
    assert f"```text\n{shown}```" in (REPOSITORY / "docs/guides/registered-functions.md").read_text()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("words", "words(text: string not null) -> table(word: string not null, length: int64 not null)"),
        ("words", "SQL       SELECT * FROM updraft.default.words(text)"),
        ("mean", "kind      aggregate: one value for each group of rows"),
        ("text.slug", "SQL       SELECT updraft.default.text.slug(title)"),
        ("echo", "echo(any columns)"),
        ("tax.rate@2", "errors    the result of a failing row is null"),
        ("tax.rate@2", "results   differ from call to call"),
        ("model", "batches   rows of several callers, joined in separate processes of the function"),
        ("tax.rate@1", "SQL       SELECT updraft.default.tax.`rate@1`(country)"),
        ("tax.rate@1", 'Python    call("tax.rate", "country", version="1")'),
        ("tax.rate@1", 'Flight    FlightDescriptor.for_path("tax.rate", "1")'),
    ],
)
def test_each_kind_says_what_it_is(shop: LocalPool, updraft: Run, name: str, says: str) -> None:
    assert says in updraft("functions", "describe", name, "--endpoint", shop.tcp_endpoint).stdout.splitlines()


def test_all_versions_are_described(shop: LocalPool, updraft: Run) -> None:
    shown = updraft("functions", "describe", "tax.rate", "--endpoint", shop.tcp_endpoint, "--output", "json").stdout
    assert [(found["version"], found["is_default"]) for found in json.loads(shown)] == [("1", False), ("2", True)]


def test_a_name_that_the_pool_does_not_have_is_answered_with_those_that_it_has(shop: LocalPool, updraft: Run) -> None:
    ended = updraft("functions", "describe", "unknown", "--endpoint", shop.tcp_endpoint)
    assert ended.returncode == 1
    assert (
        "has no function unknown; it has discount, echo, mean, model, tax.rate, text.slug, untrained, unweighted, words"
        in ended.stderr
    )


def test_one_that_cannot_be_called_is_described_with_the_reason(shop: LocalPool, updraft: Run) -> None:
    shown = updraft("functions", "describe", "untrained", "--endpoint", shop.tcp_endpoint).stdout
    assert re.search(
        "^fault +function 'untrained' cannot be loaded: OSError: the weights are missing$", shown, re.MULTILINE
    ), shown


def test_one_whose_calls_are_tried_is_not_said_to_refuse_them(shop: LocalPool, updraft: Run) -> None:
    with pytest.raises(pa.ArrowException, match="the weights are missing"):
        flight_table(shop, "unweighted", [pa.array([1])])
    said = "function 'unweighted' cannot be loaded: OSError: the weights are missing"
    shown = updraft("functions", "describe", "unweighted", "--endpoint", shop.tcp_endpoint).stdout
    assert re.search(f"^unhealthy +{said}", shown, re.MULTILINE), shown
    listed = updraft("functions", "--endpoint", shop.tcp_endpoint).stdout
    assert f"unhealthy: {said}" in listed
    assert "cannot be called: function 'untrained'" in listed
    found = updraft("functions", "--endpoint", shop.tcp_endpoint, "--output", "json").stdout
    functions = {function["name"]: function for function in json.loads(found)[0]["functions"]}
    assert [functions[name]["fault_is_final"] for name in ("untrained", "unweighted")] == [True, False]


def test_a_writer_has_no_functions(tmp_path: Path, updraft: Run) -> None:
    with LocalWriter(tmp_path) as writer:
        ended = updraft("functions", "describe", "discount", "--endpoint", writer.tcp_endpoint)
    assert (ended.returncode, "has no function discount; it has none" in ended.stderr) == (1, True)


def test_help_teaches_by_examples(typed: Run) -> None:
    shown = typed("functions", "describe", "--help").stdout
    assert shown.startswith("usage: updraft functions describe NAME [options]")
    assert "examples:\n  updraft functions describe discount" in shown
    assert "describe" in typed("functions", "--help").stdout.split("subcommands")[1]
