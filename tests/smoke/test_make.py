# SPDX-License-Identifier: Apache-2.0
"""`make demo`, `make demo-kill`, `make pool` and `make writer` do what the README shows, and end what they started."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.smoke.command import MakeCommand
from tests.support.paths import PYTHON
from tests.support.ports import free_ports

_TIMEOUT_SECONDS = 300
_OFFSETS = (0, 10, 1010)

pytestmark = pytest.mark.timeout(_TIMEOUT_SECONDS + 30)

_PASTED = """
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.master("local[2]").getOrCreate()
frame = spark.range(5).select(F.udf(lambda x: x + 1, "bigint")("id").alias("x"))
frame.explain()
print("answer:", [row.x for row in frame.collect()])
"""

_WRITTEN = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.range(5).write.format("updraft-parquet").save(sys.argv[1])
print("answer:", sorted(row.id for row in spark.read.parquet(sys.argv[1]).collect()))
"""


def _answer(output: str) -> list[str]:
    """Return the rows of the demo's table: the indented lines between its heading and the next one."""
    return output.split("\nThe answer")[1].split("\n\n")[0].splitlines()[1:]


def _assert_demo(make: MakeCommand, outcome: str) -> None:
    status = make.wait(_TIMEOUT_SECONDS)
    assert status == 0, make.output
    assert len(_answer(make.output)) == 8
    for kind in ("SQL_BATCHED_UDF", "SQL_SCALAR_PANDAS_UDF"):
        assert re.search(rf"FlightEvalPython \[\w+\(\)\], endpoint=grpc://127\.0\.0\.1:\d+, kind={kind}", make.output)
    assert re.search(outcome, make.output), make.output
    assert "plain Spark reads 336,776 flights, the same rows as stock PySpark scores" in make.output
    assert make.left_running() == []


def test_the_demo_gives_the_answer_and_shows_where_it_ran(tmp_path: Path) -> None:
    with MakeCommand("demo", "DEMO=--repeat 1", log=tmp_path / "log") as make:
        _assert_demo(make, r"Updraft gave the same answer at [0-9.]+ times the speed")


def test_the_demo_gives_the_same_answer_while_workers_are_killed(tmp_path: Path) -> None:
    with MakeCommand("demo-kill", "DEMO=--repeat 3", log=tmp_path / "log") as make:
        _assert_demo(make, r"Updraft gave the same answer while [1-9]\d* workers were killed")


def _run_with_printed_confs(make: MakeCommand, directory: Path, script: str, *arguments: str) -> str:
    """Return the output of a plain session that has only the settings that `make` has printed."""
    confs = [line.strip() for line in make.output.splitlines() if line.startswith("  spark.")]
    assert len(confs) == 3
    (directory / "spark-defaults.conf").write_text("\n".join(confs))
    session = subprocess.run(
        [PYTHON, "-c", script, *arguments],
        env={**os.environ, "SPARK_CONF_DIR": str(directory), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert session.returncode == 0, session.stderr
    return session.stdout


def test_what_the_pool_prints_works_in_a_plain_session(tmp_path: Path) -> None:
    with MakeCommand("pool", f"PORT={_free_port()}", log=tmp_path / "log") as make:
        make.wait_for("pool is ready")
        printed = _run_with_printed_confs(make, tmp_path, _PASTED)
        assert "FlightEvalPython" in printed
        assert "answer: [1, 2, 3, 4, 5]" in printed
        make.interrupt()
        assert make.left_running() == []
        assert "drained" in make.output


def test_what_the_writer_prints_works_in_a_plain_session(tmp_path: Path) -> None:
    table = tmp_path / "table"
    with MakeCommand("writer", f"WRITER_PORT={_free_port()}", f"WRITE_ROOTS={tmp_path}", log=tmp_path / "log") as make:
        make.wait_for("writer is ready")
        assert f"It writes below {tmp_path}." in make.output
        assert "answer: [0, 1, 2, 3, 4]" in _run_with_printed_confs(make, tmp_path, _WRITTEN, str(table))
        make.interrupt()
        assert make.left_running() == []
    assert list(table.glob("*.parquet"))


@pytest.mark.parametrize(("target", "variable"), [("pool", "PORT"), ("writer", "WRITER_PORT")])
def test_a_taken_port_is_said_before_anything_else(target: str, variable: str, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        MakeCommand(target, f"{variable}={server.getsockname()[1]}", log=tmp_path / "log") as make,
    ):
        assert make.wait(_TIMEOUT_SECONDS) != 0
        port = server.getsockname()[1]
        assert make.output.startswith(f"error: port {port} of 127.0.0.1 is in use: choose another with {variable}=")
        assert "spark." not in make.output


def _free_port() -> int:
    """Return a port that is free together with those that `make pool` and `make writer` derive from it."""
    return next(port for port in free_ports() if all(_is_free(port + offset) for offset in _OFFSETS))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
