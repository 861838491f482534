# SPDX-License-Identifier: Apache-2.0
"""`make record-wire`: record what a connector and a pool of this release say to each other, for the next one.

Run it from the tag of a release, on its newest Spark, and commit the file in the next one's tree.
"""

from __future__ import annotations

from tests.e2e.wire.queries import CONFS, QUERIES, RECORD
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, local_spark
from tests.support.wire import Passing, save, serving


def main() -> None:
    """Run each query once, and write the record."""
    with LocalPool(workers=1) as pool:
        passing = Passing(pool.tcp_address)
        with serving(passing) as address:
            confs = {ENABLED: "true", ENDPOINT: f"grpc://{address}", **CONFS}
            spark = local_spark("record-wire", connector=True, conf=confs)
            for name, query in QUERIES.items():
                print(f"{name}: {len(query(spark).collect())} rows")
            spark.stop()
        save(RECORD, passing.calls)
    print(RECORD.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
