# SPDX-License-Identifier: Apache-2.0
"""Jar that a session gets, and the error if there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import updraft.spark
from tests.support.paths import VERSION, connector_jar
from updraft.spark.__main__ import main
from updraft.spark.jars import JARS

_SPARK = ".".join(pyspark.__version__.split(".")[:2])


def test_the_jar_is_that_of_the_installed_pyspark(carried: Path) -> None:
    assert updraft.spark.jar() == carried / "jars" / connector_jar().name


def test_the_launcher_can_be_executed(carried: Path) -> None:
    assert updraft.spark.launcher() == carried / "bin/updraft-python"
    assert os.access(updraft.spark.launcher(), os.X_OK)


def test_the_command_adds_the_confs_of_python_workers(carried: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--endpoint", "grpc://pool:8815", "--python-workers"]) == 0
    confs = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert confs["spark.plugins"] == "io.updraft.spark.WorkerPlugin"
    assert confs["spark.pyspark.python"] == str(carried / "bin/updraft-python")
    assert confs["spark.pyspark.driver.python"] == "python3"


@pytest.mark.parametrize("version", [_SPARK, f"{_SPARK}.7", f"{_SPARK}.0-preview"])
def test_any_patch_of_a_spark_has_its_jar(carried: Path, version: str) -> None:
    assert updraft.spark.jar(version).name == f"updraft-spark-{JARS[_SPARK][0]}-{VERSION}.jar"


@pytest.mark.parametrize("version", ["3.4.1", "4", "", "four", "4.99"])
def test_another_spark_is_told_which_there_are(carried: Path, version: str) -> None:
    with pytest.raises(ValueError, match=r"has no jar for Spark .*; it runs on 4\.3, 4\.2, 4\.1, 4\.0, 3\.5"):
        updraft.spark.jar(version)


def test_a_spark_of_two_scalas_has_a_jar_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.spark.jars._jar_of", Path)
    assert updraft.spark.jar("3.5.8") == updraft.spark.jar("3.5", scala="2.12") == Path("3.5_2.12")
    assert updraft.spark.jar("3.5", scala="2.13") == Path("3.5_2.13")


def test_another_scala_is_told_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"no jar for Spark 4\.3 in Scala 2\.12; it has one in Scala 2\.13"):
        updraft.spark.jar("4.3", scala="2.12")


def test_without_the_distribution_the_error_names_it() -> None:
    with pytest.raises(ModuleNotFoundError, match="pip install updraft-spark"):
        updraft.spark.jar(_SPARK)


def test_a_jar_that_is_gone_is_no_silent_surprise(carried: Path) -> None:
    next(carried.glob("jars/*.jar")).unlink()
    with pytest.raises(ModuleNotFoundError, match="--force-reinstall updraft-spark"):
        updraft.spark.jar(_SPARK)


def test_the_command_prints_what_spark_defaults_takes(carried: Path) -> None:
    command = [sys.executable, "-m", "updraft.spark", "--spark", _SPARK]
    endpoints = ["--endpoint", "grpc://pool:8815", "--writer-endpoint", "grpc://writer:8816"]
    printed = subprocess.run([*command, *endpoints], capture_output=True, text=True, check=True, timeout=60).stdout
    assert dict(line.split() for line in printed.splitlines()) == {
        "spark.jars": str(updraft.spark.jar(_SPARK)),
        "spark.sql.extensions": "io.updraft.spark.UpdraftExtensions",
        "spark.updraft.udf.endpoint": "grpc://pool:8815",
        "spark.updraft.write.endpoint": "grpc://writer:8816",
    }


def test_the_command_prints_a_jar_for_spark_submit(carried: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jar"]) == 0
    assert capsys.readouterr().out == f"{updraft.spark.jar()}\n"


def test_the_command_says_why_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--spark", "3.4"]) == 1
    assert "no jar for Spark 3.4" in capsys.readouterr().err


def test_an_address_that_spark_would_refuse_is_refused(carried: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--endpoint", "pool:8815"]) == 1
    assert "--endpoint: 'pool:8815' does not begin with any of grpc://" in capsys.readouterr().err
    assert main([]) == 0
    assert "grpc://HOST:8815 is a placeholder" in capsys.readouterr().err
