# SPDX-License-Identifier: Apache-2.0
"""Constants of the writer's cost model, as the benchmark writes them and the writer reads them."""

from __future__ import annotations

import json

from tests.programs.bench.writer_costs import as_json, described, tables
from updraft_writer.gpu.costs import Costs, bytes_by_kind


def test_what_the_benchmark_writes_is_what_the_writer_reads() -> None:
    costs = Costs.measured()
    assert Costs(**json.loads(json.dumps(as_json(costs)))) == costs
    assert any(line.startswith("snappy: 0.034 s a write") for line in described(costs))


def test_each_table_is_of_its_kind() -> None:
    for kind, table in tables(1000).items():
        found = bytes_by_kind(table.to_batches())
        assert kind in found
        assert kind == "other" or set(found) == {kind}
