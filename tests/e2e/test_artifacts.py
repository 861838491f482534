# SPDX-License-Identifier: Apache-2.0
"""Artifacts of functions, in an application with its own files, variables and settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.e2e.applications.running import differences
from tests.support.pool import NOTES, LocalPool

_KINDS = ("udf", "mapInArrow")
_FUNCTIONS = (
    "broadcast",
    "large broadcast",
    "large function",
    "addPyFile of a module",
    "addPyFile of a package",
    "addFile",
    "addArchive",
    "directory of files",
    "environment",
    "local properties",
    "spark.executor.pyspark.memory",
)
_ONCE = ("a file with new content", "a file with new content, seen", "a secret property stays")


@pytest.fixture(scope="module")
def found(stock_only: bool) -> Mapping[str, str]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with LocalPool(workers=2, notes=NOTES) as pool:
        return differences("artifacts", pool.tcp_endpoint)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [*(f"{name}, {kind}" for name in _FUNCTIONS for kind in _KINDS), *_ONCE])
def test_a_function_finds_on_the_pool_what_it_finds_on_stock(found: Mapping[str, str], case: str) -> None:
    assert found[case] == ""
