# SPDX-License-Identifier: Apache-2.0
"""Settings of the application that scenarios change while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def application_confs(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Set `confs` in the block, then restore the old values. Tasks see `confs`, because they run in the driver."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = {key: conf.get(key) for key in confs if conf.contains(key)}
    for key, value in confs.items():
        conf.set(key, value)
    try:
        yield
    finally:
        for key in confs:
            if key in before:
                conf.set(key, before[key])
            else:
                conf.remove(key)
