# SPDX-License-Identifier: Apache-2.0
"""A UDF, a write, `updraft doctor` and the chart, from what was released alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.dist.conftest import Run
from tests.support.paths import PYTHON, REPOSITORY, VERSION

pytestmark = pytest.mark.timeout(600)

# Each block of the guide, as the cells of one notebook.
_CELLS = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_GUIDE = REPOSITORY / "docs/guides/notebook.md"
_DOCTOR = """
import subprocess, sys
import updraft.spark

with updraft.spark.local_pool(workers=1) as pool, updraft.spark.local_writer(".") as writer:
    confs = pool.spark_conf() | writer.spark_conf()
    told = [option for name, value in confs.items() for option in ("--conf", f"{name}={value}")]
    sys.exit(subprocess.run(["updraft", "doctor", *told]).returncode)
"""
_MODULES = """
import sys
import updraft.spark, updraft_server.cli, updraft_writer.cli, updraft_cli.main, pyspark

print(*{module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)})
"""
# As --packages finds the connector in a repository of files: Ivy, and no other place.
_PACKAGES = """
import os
import sys
import updraft.spark
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

pool = updraft.spark.local_pool(workers=1)
confs = pool.spark_conf()
coordinates, repository = sys.argv[1:]
del confs["spark.jars"]
confs |= {"spark.jars.packages": coordinates, "spark.jars.repositories": repository, "spark.jars.ivy": os.path.abspath("ivy")}
spark = SparkSession.builder.config(map=confs).master("local[1]").getOrCreate()
spark.range(3).select(udf(lambda x: x + 1, "long")("id")).explain()
spark.stop()
"""


@pytest.mark.parametrize("mode", ["classic", "connect"])
def test_the_guide_does_what_it_says(run: Run, tmp_path: Path, mode: str) -> None:
    cells = _CELLS.findall(_GUIDE.read_text())
    assert len(cells) == 4
    notebook = "\n".join(cells).replace("SparkSession.builder", f'SparkSession.builder.config("spark.api.mode", "{mode}")')
    ran = run("python", "-I", "-c", notebook)
    assert "FlightEvalPython" in ran.stdout
    assert "killed by SIGABRT" in ran.stdout
    assert ran.stdout.count("1000000\n") == 2
    assert "exchange ended" in ran.stdout
    assert list((tmp_path / "tables/degrees").glob("*.parquet"))


def test_nothing_comes_from_the_checkout(run: Run, installed: Path) -> None:
    listed = run("python", "-I", "-c", _MODULES).stdout.split()
    assert all(Path(file).is_relative_to(installed) for file in listed if "updraft" in Path(file).parent.name)
    assert not [file for file in listed if Path(file).is_relative_to(REPOSITORY)]


def test_doctor_finds_nothing_wrong(run: Run) -> None:
    assert "No errors." in run("python", "-I", "-c", _DOCTOR).stdout


def test_spark_finds_the_jar_in_the_maven_repository(run: Run, dist: Path) -> None:
    coordinates = f"io.updraft:updraft-spark-4.2_2.13:{VERSION}"
    ran = run("python", "-I", "-c", _PACKAGES, coordinates, (dist / "maven").as_uri())
    assert "FlightEvalPython" in ran.stdout


def test_the_chart_renders_with_the_version_of_the_release(run: Run, dist: Path, tmp_path: Path) -> None:
    values = "common.image.registry=registry.example,poolDefaults.workers.sessionFunctions=unsigned"
    helm = PYTHON.with_name("helm")
    rendered = run(str(helm), "template", "updraft", dist / f"updraft-{VERSION}.tgz", "--set", values).stdout
    images = {
        container["image"]
        for manifest in yaml.safe_load_all(rendered)
        if manifest and manifest["kind"] == "Deployment"
        for container in manifest["spec"]["template"]["spec"]["containers"]
    }
    assert images == {f"registry.example/updraft-pool:{VERSION}", f"registry.example/updraft-writer:{VERSION}"}


def test_each_program_explains_itself(run: Run) -> None:
    for program in ("updraft", "updraft-server", "updraft-writer"):
        assert run(program, "--version").stdout == f"{program} {VERSION}\n"
        assert "usage:" in run(program, "--help").stdout
    assert f"updraft-spark-4.0_2.13-{VERSION}.jar" in run("python", "-m", "updraft.spark", "--spark", "4.0").stdout
