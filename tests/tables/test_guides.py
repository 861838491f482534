# SPDX-License-Identifier: Apache-2.0
"""Code for tables in the guides."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.carried_jar import carry_jar
from tests.support.paths import PYTHON, REPOSITORY
from tests.tables.delta_log import data_files

_CODE = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PACKAGES = '"spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.4.0"'


@pytest.mark.campaign
def test_duckdb_reads_the_delta_table_of_the_notebook_guide(tmp_path: Path) -> None:
    carry_jar(tmp_path / "site")
    jars = sorted(Path(os.environ["UPDRAFT_TABLE_JARS"]).resolve(strict=True).glob("delta-*.jar"))
    code = "\n".join(_CODE.findall((REPOSITORY / "docs/guides/notebook.md").read_text()))
    assert code.count(_PACKAGES) == 1
    # Use the jars of this checkout, because tests may have no network.
    code = code.replace(_PACKAGES, f'"spark.driver.extraClassPath": "{":".join(map(str, jars))}"')
    ran = subprocess.run(
        [PYTHON, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=250,
        check=True,
    )
    assert [re.findall(r"\d+", line) for line in ran.stdout.splitlines() if re.search(r"\d+ │ +\d+", line)] == [
        ["0", "333334"],
        ["1", "333333"],
        ["2", "333333"],
    ]
    files = data_files(tmp_path / "tables/numbers")
    assert files
    assert all(str(pq.read_metadata(file).created_by).startswith("parquet-cpp") for file in files)
