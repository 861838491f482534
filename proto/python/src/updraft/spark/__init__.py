# SPDX-License-Identifier: Apache-2.0
"""Helpers for a Spark session in a notebook or on a laptop, and for the conf of a cluster.

    import updraft.spark

    pool = updraft.spark.local_pool(workers=4)
    spark = SparkSession.builder.config(map=pool.spark_conf()).getOrCreate()

The pool is a child of this process and ends with it. `pip install updraft-spark` installs all that this needs.
"""

from updraft.spark.jars import jar, launcher
from updraft.spark.local_pool import LocalPool, local_pool
from updraft.spark.local_service import LocalServiceError
from updraft.spark.local_writer import LocalWriter, local_writer

__all__ = ["LocalPool", "LocalServiceError", "LocalWriter", "jar", "launcher", "local_pool", "local_writer"]
