# SPDX-License-Identifier: Apache-2.0
"""One pool and one Spark for the whole run; `--stock-only` compares stock with itself, to check the suite."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.e2e import matrix
from tests.e2e.named import deployed_pool, naming_session
from tests.e2e.sides import Sides
from tests.e2e.types import write_table
from tests.support.java_names import keep_java_names
from tests.support.pool import NOTES, LocalPool
from tests.support.signing import Signing, new_signing
from tests.support.spark import cancel_jobs, local_spark, use_short_lived_jvms

_CONFS = {
    # Each file is a partition, however small, so the table's shapes stay apart.
    "spark.sql.files.openCostInBytes": "128m",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    # The default of Spark before 4.0 raises an error.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}

# Tests cause many errors on purpose.
QUIET = "FATAL"

_COUNTS = pytest.StashKey[Counter[tuple[str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    keep_java_names()
    use_short_lived_jvms()
    config.addinivalue_line("markers", "matrix(group): a case of the differential suite for the kind `kind`")


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_COUNTS] = matrix.counts(session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Cancel the jobs of a hanging test before pytest-timeout interrupts it.

    A thread has one connection to the JVM, and every later call of an interrupted thread waits for the job that still
    runs.
    """
    spark = _session(item)
    if spark is None:
        return (yield)
    hung = threading.Event()

    def give_up() -> None:
        hung.set()
        spark.sparkContext.cancelAllJobs()

    watch = threading.Timer(_seconds_to_hang(item), give_up)
    watch.start()
    try:
        result = yield
    finally:
        watch.cancel()
    if hung.is_set():
        pytest.fail("the test hung: its jobs were cancelled")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Wait until nothing is left running after a failed test; it would hold cores and workers of later tests."""
    report = yield
    spark = _session(item)
    if report.failed and spark is not None:
        try:
            cancel_jobs(spark)
        except TimeoutError as error:
            report.sections.append(("Jobs of this test", str(error)))
    return report


def _session(item: pytest.Item) -> SparkSession | None:
    return item.funcargs.get("spark") if isinstance(item, pytest.Function) else None


def _seconds_to_hang(item: pytest.Item) -> float:
    """Return two thirds of pytest-timeout's limit, which also covers set-up and tear-down."""
    marker = item.get_closest_marker("timeout")
    seconds = marker.args[0] if marker else item.config.getini("timeout")
    return float(seconds) * 2 / 3


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if found := config.stash.get(_COUNTS, None):
        terminalreporter.section("the differential suite: tests of each kind of function")
        terminalreporter.write_line("\n".join(matrix.table(found)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stock-only", action="store_true", help="compare stock PySpark with itself; needs no pool")
    parser.addoption("--signed", action="store_true", help="with a pool that runs only what the session has signed")


@pytest.fixture(scope="session")
def stock_only(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--stock-only"))


@pytest.fixture(scope="session")
def signing() -> Iterator[Signing]:
    with new_signing() as signing:
        yield signing


@pytest.fixture(scope="session")
def pool(stock_only: bool, signing: Signing, request: pytest.FixtureRequest) -> Iterator[LocalPool | None]:
    if stock_only:
        yield None
        return
    with signing.pool() if request.config.getoption("--signed") else LocalPool(workers=2, notes=NOTES) as pool:
        yield pool
        # pytest shows it if the test failed.
        print(pool.log())


@pytest.fixture(scope="session")
def spark(stock_only: bool, signing: Signing, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    confs = {**_CONFS, **(signing.confs if request.config.getoption("--signed") else {})}
    session = local_spark("updraft-e2e", connector=not stock_only, conf=confs)
    session.sparkContext.setLogLevel(QUIET)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def deployed(stock_only: bool) -> Iterator[LocalPool]:
    """Start a pool with functions of its own."""
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with deployed_pool() as pool:
        yield pool


@pytest.fixture(scope="module")
def named(spark: SparkSession, deployed: LocalPool) -> Iterator[SparkSession]:
    """Return a session that knows the functions of `deployed` by name."""
    with naming_session(spark, deployed) as session:
        yield session


@pytest.fixture(scope="session")
def sides(spark: SparkSession, pool: LocalPool | None, stock_only: bool) -> Sides:
    endpoints = {} if pool is None else {"tcp": pool.tcp_endpoint, "unix": pool.unix_endpoint}
    return Sides(spark, endpoints, stock_only)


@pytest.fixture(scope="session")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table")
    write_table(spark, path)
    return path
