# SPDX-License-Identifier: Apache-2.0
"""Spark's Python workers on a pool that runs nothing except code that a driver has signed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.signing import new_signing
from tests.workers.scenarios import import_all
from tests.workers.sides import updraft_side

import_all()

_LONGEST_SECONDS = 400
_REFUSED = [
    "table_functions-schema_of_the_argument",
    "streaming_sources-read_simple_stream",
    "shared_variables-broadcast",
    "data_sources-write",
]


@pytest.mark.timeout(_LONGEST_SECONDS)
def test_workers_that_load_further_pickles_are_refused_with_the_reason(tmp_path: Path) -> None:
    """The workers of `foreachBatch` load no further pickles; `test_connect.py` tests `foreachBatch`."""
    with new_signing() as signing, signing.pool() as pool:
        side = updraft_side(tmp_path / "updraft", pool.tcp_endpoint)
        found = replace(side, confs={**side.confs, **signing.confs}).run(_REFUSED)
    for name in _REFUSED:
        assert "Python workers that Spark itself starts have no signature" in str(found[name].error), name
