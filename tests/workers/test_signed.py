# SPDX-License-Identifier: Apache-2.0
"""Spark's own Python workers on a pool that runs only what a driver has signed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from signing import Driver

from tests.support.signing import new_signing
from tests.workers.scenarios import import_all
from tests.workers.sides import stock_side, updraft_side

import_all()

_LONGEST_SECONDS = 400
_PLANNED = ["table_functions-schema_of_the_argument", "table_functions-schema_of_a_broadcast"]
_READ_BY_THE_DRIVER = ["streaming_sources-read_simple_stream"]
_TASKS = ["shared_variables-broadcast", "data_sources-write"]


@pytest.mark.timeout(_LONGEST_SECONDS)
def test_the_driver_signs_its_own_workers_and_no_worker_of_a_task(tmp_path: Path) -> None:
    expected = stock_side(tmp_path / "stock").run([*_PLANNED, *_READ_BY_THE_DRIVER])
    with new_signing() as signing, signing.pool() as pool:
        side = updraft_side(tmp_path / "updraft", pool.tcp_endpoint)
        found = replace(side, confs={**side.confs, **signing.confs}).run([*expected, *_TASKS])
        signing.sign_as(Driver("a stranger"))
        strange = replace(side, directory=tmp_path / "stranger", confs={**side.confs, **signing.confs})
        refused = strange.run(_PLANNED[:1])
    for name, outcome in expected.items():
        assert outcome.error is None, outcome.error
        assert found[name].error is None, found[name].error
        assert (found[name].value, found[name].pythons) == (outcome.value, []), name
    for name in _TASKS:
        assert "Python workers that Spark starts for tasks have no signatures" in str(found[name].error), name
    assert "does not know the key" in str(refused[_PLANNED[0]].error)
