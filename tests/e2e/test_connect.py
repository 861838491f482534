# SPDX-License-Identifier: Apache-2.0
"""Functions of Spark Connect sessions: artifacts belong to their session, on the pool as on stock."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.e2e.applications.running import differences
from tests.support.pool import NOTES, LocalPool

_KINDS = ("udf", "udf over Arrow", "mapInArrow", "applyInPandas")


@pytest.fixture(scope="module")
def found(stock_only: bool) -> Mapping[str, str]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with LocalPool(workers=2, notes=NOTES) as pool:
        return differences("connect", pool.tcp_endpoint)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("session", ["first", "second"])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_function_finds_the_artifacts_of_its_session(found: Mapping[str, str], kind: str, session: str) -> None:
    assert found[f"{kind}, {session} session"] == ""
