# SPDX-License-Identifier: Apache-2.0
"""Each fault affects its own exchange as the table states, and has no lasting effect on the pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.table import bombs, containers, networks, places, processes, storages, writer_clocks
from tests.faults.table.fault import Fault, Pool
from tests.faults.table.scene import Scene
from tests.faults.table.writer_scene import WriterFault, WriterScene

TABLE: list[Fault] = [*processes.rows(), *networks.rows(), *places.rows(), *bombs.rows(), *containers.rows()]
WRITERS: list[WriterFault] = [*storages.rows(), *writer_clocks.rows()]
_AT_LEAST = 80


def test_the_table_is_as_long_as_it_is_said_to_be() -> None:
    names = [fault.name for fault in TABLE] + [fault.name for fault in WRITERS]
    assert len(set(names)) == len(names) >= _AT_LEAST


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", TABLE, ids=lambda fault: fault.name)
def test_fault(fault: Fault, tmp_path: Path) -> None:
    if why := fault.needs():
        pytest.skip(why)
    with Scene(tmp_path, fault) as scene:
        code = fault.happens(scene)
        if fault.client:
            assert code in fault.client
        else:
            assert code is None
        if fault.pool is Pool.GONE:
            scene.start_again()
        else:
            scene.wait_until_whole()
        scene.serve_good_exchanges()
        scene.is_as_before()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", WRITERS, ids=lambda fault: fault.name)
def test_fault_of_a_writer(fault: WriterFault, tmp_path: Path) -> None:
    if why := fault.needs():
        pytest.skip(why)
    with WriterScene(tmp_path, fault) as scene:
        if fault.client is None:
            fault.happens(scene)
        else:
            with pytest.raises(fault.client):
                fault.happens(scene)
        if fault.starts_again:
            scene.start_again()
        if fault.heals:
            scene.wait_until_healed()
        if fault.published is not None:
            assert (scene.root / "part.parquet").exists() == fault.published
        scene.writes_good_files()
        scene.is_as_before()
