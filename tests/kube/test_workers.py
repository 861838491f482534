# SPDX-License-Identifier: Apache-2.0
"""Guide docs/guides/executors-without-python.md: pods without Python run one tests/workers scenario of each kind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.cluster import Release
from tests.kube.executors import EXECUTOR, confs_of_workers
from tests.kube.image_files import files_named
from tests.kube.namespace import TABLES, Namespace
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import ENDPOINT
from tests.workers.sides import LAUNCHER, Outcome, Side, stock_side
from tests.workers.test_connect import outcome

_SCENARIOS = (
    "rdd_pairs-reduce_by_key",
    "shared_variables-accumulators_of_numbers",
    "shared_variables-broadcast",
    "barrier-all_gather",
    "functions-pickled_function",
    "table_functions-table_argument_with_partitions",
    "data_sources-read",
    "data_sources-write_arrow_batches",
    "streaming_sources-read_partitioned_stream",
    "streaming_sources-write_stream",
    "files-add_archive",
    "state-totals_of_keys",
    "transforms-value_state",
)
_PYTHON = ("python*", "libpython*")


@pytest.fixture(scope="module", autouse=True)
def since_spark_4() -> None:
    needs_spark((4, 0), "Python workers on a pool")


@pytest.fixture(scope="module")
def upgraded(release: Release, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let functions on the default pool write to the tables, as a data source does."""
    workers = {
        "container": {"volumeMounts": [{"name": TABLES, "mountPath": str(tables)}]},
        "settings": {"writablePaths": str(tables)},
    }
    volume = {"name": TABLES, "persistentVolumeClaim": {"claimName": TABLES}}
    pool = {"workers": workers, "podTemplate": {"spec": {"volumes": [volume]}}}
    values = tmp_path_factory.mktemp("workers") / "values.yaml"
    values.write_text(yaml.safe_dump({"pools": {"default": pool}}))
    release.upgrade_with_file(values)
    yield
    release.upgrade()


@pytest.fixture(scope="module")
def outcomes(
    upgraded: None,
    release: Release,
    namespace: Namespace,
    images: str,
    tables: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Mapping[str, Outcome]]:
    """Return the outcomes of the scenarios, by side."""
    # Imported here, because older Sparks lack what these modules import.
    from tests.workers.scenarios import import_all

    import_all()
    directory = tmp_path_factory.mktemp("workers")
    confs = {
        **confs_of_workers(release, namespace, images, tables, directory),
        "spark.sql.streaming.checkpointLocation": str(tables / "checkpoints"),
        # Spark mounts a volume there into executors, which must not cover the shared files of a side.
        "spark.local.dir": str(directory / "local"),
    }
    sides = {
        "stock": stock_side(directory / "stock"),
        # Executors and the pool also see this directory. Executors and the driver find the launcher on their own PATH.
        "updraft": Side(tables / "workers", Path(LAUNCHER.name), False, confs),
    }
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as threads:
        patch.setenv("PATH", str(LAUNCHER.parent), prepend=os.pathsep)
        running = {side: threads.submit(sides[side].run, _SCENARIOS) for side in sides}
        return {side: running[side].result() for side in sides}


def test_a_foreach_batch_function_of_spark_connect_runs_on_the_pool(
    upgraded: None,
    release: Release,
    namespace: Namespace,
    images: str,
    tables: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confs = confs_of_workers(release, namespace, images, tables, tmp_path)
    # The application adds the plugin to that of Spark Connect.
    del confs["spark.plugins"]
    confs["spark.pyspark.python"] = LAUNCHER.name
    monkeypatch.setenv("PATH", str(LAUNCHER.parent), prepend=os.pathsep)
    # The stream's files have to be where executors see them.
    shared = tables / "streams"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(shared))
    found = outcome(confs[ENDPOINT], tables / "connect", ["batches", "failing_batch"], confs)
    assert [row[:3] for row in found["batches"]] == [[0, 3, 6], [1, 2, 9], [2, 1, 6]]
    assert found["failing_batch"] == "ValueError: no batch 0"
    assert found["token of a task"] == [None]
    assert found["pythons"] == []


def test_the_executors_image_has_no_python(namespace: Namespace, images: str) -> None:
    assert files_named(namespace, f"{images}/{EXECUTOR}", *_PYTHON, "updraft-python") == ["/opt/updraft/updraft-python"]


@pytest.mark.parametrize("name", _SCENARIOS)
def test_a_scenario_has_the_same_outcome_as_on_stock(outcomes: Mapping[str, Mapping[str, Any]], name: str) -> None:
    stock, ours = outcomes["stock"][name], outcomes["updraft"][name]
    assert (stock.error, ours.error) == (None, None)
    assert ours.value == stock.value
    assert ours.pythons == []
