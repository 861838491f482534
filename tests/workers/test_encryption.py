# SPDX-License-Identifier: Apache-2.0
"""Broadcast variables that Spark encrypts on disk: outcomes equal stock's, and Spark writes no plain text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.pool import LocalPool
from tests.workers.scenarios import import_all
from tests.workers.sides import stock_side, updraft_side

import_all()

_LONGEST_SECONDS = 600
_CONFS = {
    "spark.io.encryption.enabled": "true",
    "spark.executor.memory": "1g",
    # Use Spark's own daemon, because executors cannot import the daemon of the tests.
    "spark.python.daemon.module": "pyspark.daemon",
}
_NAMES = [
    "functions-function_with_a_broadcast",
    "shared_variables-broadcast_on_disk",
    "shared_variables-broadcasts_that_change_between_tasks",
    "shared_variables-large_function",
    "shared_variables-several_broadcasts",
    "table_functions-schema_of_a_broadcast",
]
_MORE_NAMES = [*_NAMES, "state-broadcast_in_a_state_function"]


@pytest.mark.timeout(_LONGEST_SECONDS)
@pytest.mark.parametrize(
    ("master", "socket", "names"),
    [
        pytest.param("local-cluster[1,2,1024]", "false", _NAMES, id="executor"),
        # The driver has the original files. Spark before 4.1 has no Unix sockets.
        pytest.param("local[2]", "true", _MORE_NAMES, id="driver", marks=pytest.mark.campaign),
    ],
)
def test_encrypted_broadcasts_reach_workers_on_the_pool(
    tmp_path: Path, master: str, socket: str, names: list[str]
) -> None:
    confs = {**_CONFS, "spark.master": master, "spark.python.unix.domain.socket.enabled": socket}
    with LocalPool(workers=4) as pool, ThreadPoolExecutor() as threads:
        stock = stock_side(tmp_path / "stock")
        ours = updraft_side(tmp_path / "updraft", pool.tcp_endpoint)
        running = [
            threads.submit(side.run, names)
            for side in (replace(side, confs={**side.confs, **confs}) for side in (stock, ours))
        ]
        expected, found = (outcomes.result() for outcomes in running)
    for name in names:
        assert expected[name].error is None, f"{name} on stock: {expected[name].error}"
        assert found[name].error is None, f"{name}: {found[name].error}"
        assert found[name].value == expected[name].value, name
        assert found[name].pythons == [], name
    assert found["shared_variables-broadcast_on_disk"].value[1] is False
