# SPDX-License-Identifier: Apache-2.0
"""Everything that Spark runs in its own Python workers has the same outcome on a pool, and Spark starts no Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from _pytest.mark import ParameterSet

from tests.support.kinds_of_spark import needs_spark
from tests.support.pool import NOTES, LocalPool
from tests.support.spark import SPARK_VERSION
from tests.workers.scenario import SCENARIOS
from tests.workers.scenarios import import_all
from tests.workers.sides import Outcome, stock_side, updraft_side

import_all()

_LONGEST_SECONDS = 3600


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=4, notes=NOTES) as pool:
        yield pool
        # If the test fails, pytest shows this output.
        print(pool.log())


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, pool: LocalPool, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Mapping[str, Outcome]]:
    """Run both sides at the same time and return the outcomes of the selected scenarios, by side."""
    directory = tmp_path_factory.mktemp("sides")
    chosen = {
        item.callspec.params.get("name")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    names = [name for name, scenario in SCENARIOS.items() if name in chosen and scenario.since <= SPARK_VERSION]
    sides = {
        "stock": stock_side(directory / "stock"),
        "updraft": updraft_side(directory / "updraft", pool.tcp_endpoint),
    }
    with ThreadPoolExecutor() as threads:
        running = {side: threads.submit(sides[side].run, names) for side in sides}
        return {side: running[side].result() for side in sides}


def _parameters() -> list[ParameterSet]:
    parameters = []
    for name, scenario in SCENARIOS.items():
        marks = [] if scenario.everyday else [pytest.mark.campaign]
        parameters.append(pytest.param(name, marks=marks))
    return parameters


@pytest.mark.timeout(_LONGEST_SECONDS)
@pytest.mark.parametrize("name", _parameters())
def test_a_scenario_has_the_same_outcome_on_the_pool(outcomes: Mapping[str, Mapping[str, Outcome]], name: str) -> None:
    needs_spark(SCENARIOS[name].since, name)
    stock, ours = outcomes["stock"][name], outcomes["updraft"][name]
    if stock.error is not None:
        pytest.fail(f"the scenario failed on stock: {stock.error}")
    assert ours.error is None, ours.error
    assert ours.value == stock.value
    assert ours.pythons == []
