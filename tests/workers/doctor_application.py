# SPDX-License-Identifier: Apache-2.0
"""Application of `updraft doctor` with the kinds and limits that a test chooses, and with kinds that never end.

The doctor runs this file instead of its own application.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource
from pyspark.sql.functions import udtf

from updraft_cli.doctor import kinds

KINDS, LIMITS = "UPDRAFT_TEST_KINDS", "UPDRAFT_TEST_LIMITS"
"""Environment variables for the names of the kinds and for the values of the limits, both separated by commas."""


def _analyze(_spark: Any) -> None:
    class Hanging:
        @staticmethod
        def analyze() -> None:
            time.sleep(3600)

        def eval(self) -> Any:
            yield (1,)

    udtf(Hanging)().count()


class _Hanging(DataSource):  # type: ignore[misc]  # PySpark is untyped to us
    def schema(self) -> str:
        time.sleep(3600)
        return "n int"


def _schema(spark: Any) -> None:
    spark.dataSource.register(_Hanging)
    spark.read.format(_Hanging.name()).load()


def _stopped_jvm(spark: Any) -> None:
    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGSTOP)
    spark.range(1).count()


_HANGING = {"analyze": _analyze, "schema": _schema, "stopped JVM": _stopped_jvm}


def main() -> None:
    """Try the kinds that the environment variable names."""
    # Workers on the pool cannot import this package.
    cloudpickle.register_pickle_by_value(kinds)
    limits = kinds.trial.Limits(*map(float, os.environ[LIMITS].split(",")))
    names = os.environ[KINDS].split(",")
    batch = {**kinds.BATCH_KINDS, **_HANGING}
    kinds.main(
        limits,
        {name: batch[name] for name in names if name in batch},
        {name: kinds.STREAMING_KINDS[name] for name in names if name in kinds.STREAMING_KINDS},
    )


if __name__ == "__main__":
    main()
