# SPDX-License-Identifier: Apache-2.0
"""Python workers that a pool does not run: the error of the job names what to change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, local_spark
from tests.workers.sides import LAUNCHER, PLUGIN

_LONGEST_SECONDS = 120


def messages(endpoint: str) -> list[str]:
    """Return the errors of an RDD, first as PySpark starts it and then with another hash seed."""
    confs = {ENDPOINT: endpoint, "spark.plugins": PLUGIN, "spark.master": "local[1]"}
    spark = local_spark("refusals", connector=True, conf=confs, python=LAUNCHER)
    found = []
    for seed in ("0", "7"):
        spark.sparkContext.environment["PYTHONHASHSEED"] = seed
        try:
            found.append(f"returned {spark.sparkContext.parallelize([1], 1).map(abs).collect()}")
        except Exception as error:
            found.append(str(error))
    spark.stop()
    return found


def test_a_job_is_told_why_the_pool_refuses_it(tmp_path: Path) -> None:
    result = tmp_path / "messages.json"
    with LocalPool(workers=1, session_functions="off") as pool:
        command = [str(PYTHON), "-m", "tests.workers.test_refusals", pool.tcp_endpoint, str(result)]
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False
        )
    assert done.returncode == 0, done.stderr[-5000:]
    refused, hashed = json.loads(result.read_text())
    assert "The worker on the pool failed: this pool runs registered functions only" in refused
    assert "--session-functions unsigned" in refused
    assert "the session sets PYTHONHASHSEED to 7, but the workers of a pool hash with 0" in hashed


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(messages(sys.argv[1])))
