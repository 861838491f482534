# SPDX-License-Identifier: Apache-2.0
"""`make record-wire`: record the messages of this release's connector, pool and writer, for tests of the next release.

Run the program in a checkout of a release's tag, with the release's newest Spark, and commit the records in the next
release's tree. Pickled functions contain the paths of their source files, so use a checkout whose path may be
published.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from grpc import StatusCode
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from tests.e2e.wire import writes
from tests.e2e.wire.queries import CONFS, QUERIES, RECORD, errors
from tests.support.flight import echo_command, exchange, whole_request
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, local_spark, runtime_confs
from tests.support.wire import Passing, save, serving
from tests.support.writer import LocalWriter

_NUMBERS = pa.record_batch({"_0": pa.array(range(10), pa.int64())})


def main() -> None:
    """Run each query and each write once, and store the records."""
    spark = local_spark("record-wire", connector=True, conf=CONFS)
    try:
        record_queries(spark)
        record_writes(spark)
    finally:
        spark.stop()


def record_queries(spark: SparkSession) -> None:
    """Record the messages between connector and pool."""
    with LocalPool(workers=1) as pool:
        passing = Passing(pool.tcp_address)
        with serving(passing) as address, runtime_confs(spark, {ENABLED: "true", ENDPOINT: f"grpc://{address}"}):
            for name, query in QUERIES.items():
                print(f"{name}: {len(query(spark).collect())} rows")
            with suppress(PythonException):
                errors(spark).collect()
            assert exchange(address, whole_request(echo_command(), _NUMBERS.schema, [_NUMBERS])).code is StatusCode.OK
    save(RECORD, passing.calls)
    print(RECORD.relative_to(REPOSITORY))


def record_writes(spark: SparkSession) -> None:
    """Record the messages between connector and writer."""
    with tempfile.TemporaryDirectory() as directory, LocalWriter(Path(directory)) as writer:
        passing = Passing(writer.tcp_address)
        with serving(passing) as address:
            for number, (name, write) in enumerate(writes.WRITES.items()):
                with runtime_confs(spark, {writes.ENDPOINT: f"grpc://{address}", **write.confs}):
                    write.run(spark, Path(directory) / f"write-{number}")
                print(name)
    save(writes.RECORD, passing.calls)
    print(writes.RECORD.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
