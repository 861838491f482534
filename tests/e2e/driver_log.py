# SPDX-License-Identifier: Apache-2.0
"""Driver log of a block, for a test to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.e2e.conftest import QUIET


@contextmanager
def driver_log(spark: SparkSession, path: Path) -> Iterator[Path]:
    """Write the driver's log to a file during the block."""
    log4j = spark._jvm.org.apache.logging.log4j
    builder = log4j.core.appender.FileAppender.newBuilder()
    builder.setName(path.name)
    builder.withFileName(str(path))
    builder.setLayout(log4j.core.layout.PatternLayout.createDefaultLayout())
    appender, root = builder.build(), log4j.LogManager.getRootLogger()
    appender.start()
    root.addAppender(appender)
    spark.sparkContext.setLogLevel("WARN")
    try:
        yield path
    finally:
        spark.sparkContext.setLogLevel(QUIET)
        root.removeAppender(appender)
        appender.stop()
