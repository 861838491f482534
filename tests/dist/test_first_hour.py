# SPDX-License-Identifier: Apache-2.0
"""A UDF, a write, `updraft doctor` and the chart, from the released files alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.dist.conftest import NO_NETWORK, Run, new_environment, typed
from tests.dist.guides import cells, commands, python_commands
from tests.support.paths import PYTHON, REPOSITORY, VERSION

pytestmark = pytest.mark.timeout(1800)

_CLUSTERS_POOL = "grpc://updraft-pool-default.data:8815"
# Runs a script beside a pool, whose endpoint is the script's $ENDPOINT.
_BESIDE_A_POOL = """
import os, subprocess, sys
import updraft.spark

with updraft.spark.local_pool(workers=1) as pool:
    shell = ["bash", "-eu", "-o", "pipefail", "-c", sys.argv[1]]
    sys.exit(subprocess.run(shell, env={**os.environ, "ENDPOINT": pool.endpoint}).returncode)
"""
_JOB = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
frame = spark.range(3).select(udf(lambda x: x + 1, "long")("id"))
frame.explain()
print(frame.collect())
spark.stop()
"""
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
# Resolves the connector with Ivy in a repository of files only, as --packages does.
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
    found = cells("notebook")
    assert len(found) == 6
    notebook = "\n".join(found).replace(
        "SparkSession.builder", f'SparkSession.builder.config("spark.api.mode", "{mode}")'
    )
    ran = run("python", "-I", "-c", notebook)
    assert "FlightEvalPython" in ran.stdout
    assert "killed by SIGABRT" in ran.stdout
    assert ran.stdout.count("1000000\n") == 1
    assert ran.stdout.count("1800030.2\n") == 1
    page = (REPOSITORY / "docs/guides/notebook.md").read_text()
    assert re.sub("^ *", "", _table(page), flags=re.MULTILINE) == _table(ran.stdout)
    (cancelled,) = (line for line in ran.stdout.splitlines() if line.startswith((": org", "(org")) and "CANCEL" in line)
    assert re.sub(r"Job \d+", "Job 5", cancelled) in page
    assert "exchange ended" in ran.stdout
    assert "outcome=cancelled" in ran.stdout
    assert list((tmp_path / "tables/degrees").glob("*.parquet"))


def _table(text: str) -> str:
    """Return the numbers in kelvin, as Spark shows them."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.endswith("|kelvin|"))
    return "\n".join(lines[first : first + 5])


def test_a_clusters_conf_is_printed_checked_and_used_as_the_guide_says(run: Run, tmp_path: Path) -> None:
    """A pool of this machine takes the place of the cluster's."""
    _, *lines = commands("notebook")
    assert [line.split()[0] for line in lines] == ["python", "updraft", "spark-submit", "spark-submit"]
    assert lines[0].count(_CLUSTERS_POOL) == 1
    prepare = """
    SPARK=$(python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
    export SPARK_HOME=$PWD/spark; mkdir --parents $SPARK_HOME/conf; ln --symbolic $SPARK/{bin,jars,python} $SPARK_HOME
    """
    (tmp_path / "job.py").write_text(_JOB)
    script = "\n".join([prepare, *lines]).replace(_CLUSTERS_POOL, "$ENDPOINT")
    ran = run("python", "-c", _BESIDE_A_POOL, script)
    assert ran.stdout.count("No errors.") == 1
    assert ran.stdout.count("FlightEvalPython") == ran.stdout.count("=3)]") == 2


def test_doctor_names_a_pool_that_is_not_there(run: Run, tmp_path: Path) -> None:
    confs = run("python", *commands("notebook")[1].partition(" >>")[0].split()[1:]).stdout
    assert _CLUSTERS_POOL in confs
    (tmp_path / "spark-defaults.conf").write_text(confs)
    said = run("updraft", "doctor", "--defaults", "spark-defaults.conf", status=1).stdout
    assert "updraft-pool-default.data" in said


def test_a_place_without_a_network_installs_what_was_brought_in(wheels: Path, dist: Path, tmp_path: Path) -> None:
    made = new_environment(tmp_path / "environment")
    for name in ("dist", "wheels"):
        (tmp_path / name).symlink_to(wheels / name)
    _, install = python_commands("platforms")
    typed(install, made, tmp_path, NO_NETWORK)
    typed("pip check", made, tmp_path)
    found = {each["name"]: each["version"] for each in json.loads(typed("pip list --format json", made, tmp_path))}
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ \n]+)", (dist / "constraints.txt").read_text(), re.MULTILINE))
    assert found["pyspark"] == locked["pyspark"]
    assert found["updraft-spark"] == VERSION
    others = {name: version for name, version in found.items() if name in locked and name != "numpy"}
    assert others == {name: locked[name] for name in others}
    assert f"updraft-server {VERSION}" in typed("updraft-server --version", made, tmp_path)


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
