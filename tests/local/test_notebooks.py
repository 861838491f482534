# SPDX-License-Identifier: Apache-2.0
"""A local pool in a real Jupyter kernel, in a classic session and over Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.kernel import Kernel, running_kernel
from tests.support.waiting import until

_SESSION = """
import time
import updraft.spark
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

pool = updraft.spark.local_pool(workers=1)
builder = SparkSession.builder.config(map=pool.spark_conf()).config("spark.ui.enabled", "false")
spark = builder.config("spark.api.mode", "{mode}").master("local[2]").getOrCreate()

@udf("long")
def sleepy(x):
    print("asleep", flush=True)
    time.sleep(600)

one = udf(lambda x: 1, "long")
print(spark.range(1).select(one("id").alias("one")).first()[0])
print(pool.log_file)
"""


@pytest.fixture(params=["classic", "connect"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kernel(carried: Path, tmp_path: Path) -> Iterator[Kernel]:
    with running_kernel(tmp_path) as kernel:
        yield kernel


def test_the_stop_button_frees_the_worker_at_once(kernel: Kernel, mode: str) -> None:
    started = kernel.run(_SESSION.format(mode=mode))
    assert not started.error, started.text
    log = Path(started.text.split()[-1])
    before = kernel.run("import signal; print(signal.getsignal(signal.SIGINT))").text
    # Twice: the first interrupt leaves everything as it was.
    for times in (1, 2):
        cell = kernel.start("spark.range(1).select(sleepy('id')).collect()")
        until("the function runs", lambda times=times: log.read_text().count("asleep") == times)  # type: ignore[misc]
        kernel.interrupt()
        assert kernel.finished(cell).error
        until("its worker is free", lambda times=times: log.read_text().count("outcome=cancelled") == times)  # type: ignore[misc]
        after = kernel.run("print(spark.range(1).select(one('id').alias('one')).first()[0])")
        assert after.text.strip().endswith("1"), after.text
    assert kernel.run("import signal; print(signal.getsignal(signal.SIGINT))").text == before
