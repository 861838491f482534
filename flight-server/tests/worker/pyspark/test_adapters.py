# SPDX-License-Identifier: Apache-2.0
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest
from pyspark.util import PythonEvalType

from updraft_server.worker.pyspark.adapters import SUPPORTED, load_adapter, minor_version
from updraft_server.worker.pyspark.kinds import KINDS, EvalType, Reads, kinds_of

_TABLE = Path(__file__).resolve().parents[4] / "spark-versions.toml"


def test_every_spark_of_the_table_has_an_adapter() -> None:
    versions = [minor_version(spark["version"]) for spark in tomllib.loads(_TABLE.read_text())["spark"]]
    assert sorted(versions) == sorted(SUPPORTED)
    assert all(find_spec(f"updraft_server.worker.pyspark.pyspark_{major}_{minor}") for major, minor in versions)


@pytest.mark.parametrize("version", ["3.5.8", "4.9.0"])
def test_another_pyspark_is_refused_with_those_that_are_known(version: str) -> None:
    with pytest.raises(ImportError, match=rf"pyspark {version} is none of 4\.0, 4\.1, 4\.2, 4\.3"):
        load_adapter(version)


def test_the_kinds_of_this_pyspark_are_those_that_it_has() -> None:
    numbers = {value for name, value in vars(PythonEvalType).items() if name.startswith("SQL_")}
    assert set(kinds_of(minor_version(pyspark.__version__))) == set(KINDS) & numbers


def test_only_4_0_reads_a_group_as_a_batch() -> None:
    assert kinds_of((4, 0))[EvalType.GROUPED_MAP_PANDAS].reads is Reads.GROUP_BATCHES
    later = [kind.reads for version in SUPPORTED[1:] for kind in kinds_of(version).values()]
    assert Reads.GROUP_BATCHES not in later
