# SPDX-License-Identifier: Apache-2.0
"""Pool with functions of its own, and a session that finds them by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession

from tests.e2e.applications import deployed_functions
from tests.support.paths import EXAMPLES, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, SPARK_VERSION, another_session

CATALOG = "spark.sql.catalog.updraft"


@contextmanager
def deployed_pool() -> Iterator[LocalPool]:
    """Start a pool with the functions of the guide and those of `applications/deployed_functions.py`."""
    pool = LocalPool(arguments=("--functions", f"shop,{deployed_functions.__name__}"))
    with mock.patch.dict(os.environ, PYTHONPATH=f"{REPOSITORY}:{EXAMPLES}:{weights_of(pool).parent}"), pool:
        yield pool


def weights_of(pool: LocalPool) -> Path:
    """Return the path of a file, initially missing, that some functions of `deployed_pool` need to load."""
    return pool.directory / deployed_functions.WEIGHTS


@contextmanager
def naming_session(spark: SparkSession, pool: LocalPool) -> Iterator[SparkSession]:
    """Return a session that knows the pool's functions by name, and the pool by two names."""
    with another_session(spark) as session:
        session.conf.set(ENDPOINT, pool.tcp_endpoint)
        session.conf.set(CATALOG, "io.updraft.spark.FunctionCatalog")
        session.conf.set(f"{CATALOG}.pool.other", pool.unix_endpoint)
        yield session


@contextmanager
def before_tables(session: Any, pool: str = "default") -> Iterator[str]:
    """Yield the prefix for names of table functions; Spark before 4.2 cannot parse a catalog there."""
    if SPARK_VERSION >= (4, 2):
        yield f"updraft.{pool}."
        return
    session.sql(f"USE updraft.{pool}")
    try:
        yield ""
    finally:
        session.sql("USE spark_catalog.default")


def values(session: SparkSession, query: str) -> list[Any]:
    """Return the rows of a query: tuples, or plain values if there is one column."""
    return [tuple(row) if len(row) > 1 else row[0] for row in session.sql(query).collect()]
