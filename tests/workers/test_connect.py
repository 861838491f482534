# SPDX-License-Identifier: Apache-2.0
"""foreachBatch functions and listeners of Spark Connect, on stock and with their workers on a pool.

Clients since 4.0 no longer send listeners to the server, so the scenario `listener` sends one with a raw command.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.signing import new_signing
from tests.workers import no_python
from tests.workers.connect_application import BATCH_SECONDS, TOKEN
from tests.workers.connect_attacks import ATTACKS
from tests.workers.connect_listeners import LISTENED

_LONGEST_SECONDS = 240
_EVERYDAY = ("batches", "failing_batch")
_OTHERS = ("large_batches", "two_at_once", "slow_batch", "listener")


def outcome(
    endpoint: str, directory: Path, names: Sequence[str], confs: Mapping[str, str] | None = None
) -> dict[str, Any]:
    directory.mkdir()
    module, result = "tests.workers.connect_application", Path(f"{directory}.json")
    command = [str(PYTHON), "-m", module, endpoint, str(directory), str(result), json.dumps(confs or {}), *names]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **(no_python.environment() if endpoint else {})},
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return {**json.loads(result.read_text()), "log": done.stderr}


@pytest.mark.timeout(2 * _LONGEST_SECONDS)
@pytest.mark.parametrize("names", [_EVERYDAY, pytest.param(_OTHERS, marks=pytest.mark.campaign)], ids=",".join)
def test_the_outcome_is_that_of_stock_without_a_python(tmp_path: Path, names: Sequence[str]) -> None:
    on_stock = outcome("", tmp_path / "stock", names)
    # The pool's limit applies to functions that process batches, not to foreachBatch.
    with LocalPool(workers=3, arguments=["--batch-timeout-seconds", str(BATCH_SECONDS)]) as pool:
        on_pool = outcome(pool.tcp_endpoint, tmp_path / "pool", names)
        log = pool.log_file.read_text()
    assert {name: on_pool[name] for name in names} == {name: on_stock[name] for name in names}
    assert on_pool.get("listener", LISTENED) == LISTENED
    assert on_stock["pythons"]
    assert on_pool["pythons"] == []
    # The workers that use the session know its token, but none of them prints it.
    assert on_pool["token of a task"] == [None]
    assert "worker output" in log
    assert TOKEN not in log


@pytest.mark.timeout(2 * _LONGEST_SECONDS)
def test_a_signed_function_runs_and_a_task_of_the_server_is_refused(tmp_path: Path) -> None:
    with new_signing() as signing, signing.pool() as pool:
        found = outcome(pool.tcp_endpoint, tmp_path / "pool", ["batches", "failing_batch"], signing.confs)
        opened = signing.opened()
    assert [row[:3] for row in found["batches"]] == [[0, 3, 6], [1, 2, 9], [2, 1, 6]]
    assert found["failing_batch"] == "ValueError: no batch 0"
    assert "Python workers that Spark itself starts have no signature" in found["token of a task"]
    # The log contains the function's digest, with which an operator can revoke the function.
    assert opened["signer"] == signing.driver.name
    assert len(opened["functions"]) == 1


@pytest.mark.campaign
@pytest.mark.timeout(2 * _LONGEST_SECONDS)
def test_a_hostile_function_harms_only_its_own_query(tmp_path: Path) -> None:
    names = [attack.__name__ for attack in ATTACKS]
    with LocalPool(workers=3) as pool:
        confs = {"spark.log.level": "WARN"}
        found = outcome(pool.tcp_endpoint, tmp_path / "pool", [*names, "batches"], confs)
    sockets = found["uses_the_socket_of_another_worker"]
    assert (sockets["own"], sockets["another"]) == (["answered"], ["closed"])
    reasons = {
        "connects_to_another_port": "the worker asked to connect to 22, which Spark did not announce to it",
        "lies_about_what_it_has_read": f"the pool reported {1 << 40} bytes as read",
        "opens_too_many_connections": "the worker keeps 32 connections to Spark open, and asked for another one",
        "replies_with_other_columns": "a reply of the worker exchange has other columns",
        "writes_to_a_connection_that_is_not_open": "the worker wrote to connection 1000 without opening it",
    }
    for name, reason in reasons.items():
        assert "Python worker exited unexpectedly" in found[name], found[name]
        assert f"The worker on the pool failed: {reason}" in found["log"], name
    assert [row[:3] for row in found["batches"]] == [[0, 3, 6], [1, 2, 9], [2, 1, 6]]
