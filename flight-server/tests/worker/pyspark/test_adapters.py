# SPDX-License-Identifier: Apache-2.0
import tomllib
from pathlib import Path

import pyspark
import pytest
from pyspark.rdd import PythonEvalType

from updraft_server.worker.pyspark.adapters import SUPPORTED, load_adapter, minor_version
from updraft_server.worker.pyspark.kinds import KINDS, Reads, kinds_of

_TABLE = Path(__file__).resolve().parents[4] / "spark-versions.toml"


def test_every_spark_of_the_table_has_an_adapter() -> None:
    versions = [minor_version(spark["version"]) for spark in tomllib.loads(_TABLE.read_text())["spark"]]
    assert sorted(versions) == sorted(SUPPORTED)


@pytest.mark.parametrize("version", ["3.4.4", "4.9.0"])
def test_another_pyspark_is_refused_with_those_that_are_known(version: str) -> None:
    with pytest.raises(ImportError, match=rf"pyspark {version} is not supported: use one of 3\.5, 4\.0, 4\.1, 4\.2"):
        load_adapter(version)


def test_a_pool_runs_all_that_this_pyspark_has_but_functions_with_state() -> None:
    named = {name: value for name, value in vars(PythonEvalType).items() if name.startswith("SQL_")}
    with_state = {name for name in named if "STATE" in name}
    assert {number: kind.name for number, kind in kinds_of(minor_version(pyspark.__version__)).items()} == {
        value: name for name, value in named.items() if name not in with_state
    }


@pytest.mark.skipif(minor_version(pyspark.__version__) != SUPPORTED[-1], reason="an older PySpark lacks some kinds")
def test_the_newest_pyspark_has_every_kind_of_the_table() -> None:
    assert len(kinds_of(SUPPORTED[-1])) == len(KINDS)


def test_4_0_and_before_read_a_group_as_a_batch() -> None:
    assert kinds_of((4, 0))[PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF].reads is Reads.GROUP_BATCHES
    later = [kind.reads for version in SUPPORTED if version > (4, 0) for kind in kinds_of(version).values()]
    assert Reads.GROUP_BATCHES not in later
