# SPDX-License-Identifier: Apache-2.0
"""Writer tokens that are rotated while files are written: no write fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from tests.e2e.writer.conftest import ENDPOINT
from tests.e2e.writer.written import write
from tests.support.spark import runtime_confs
from tests.support.tokens import TokenFiles
from tests.support.writer import LocalWriter

_ROTATIONS = 20


def test_no_write_fails_while_tokens_are_rotated(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    tokens = TokenFiles(tmp_path)
    rotated = threading.Event()

    def writes() -> int:
        written = 0
        while not rotated.is_set():
            rows = write(spark.range(0, 8, 1, 4), place / f"beside-{written}", "updraft-parquet").rows(spark)
            assert len(rows) == 8
            written += 1
        return written

    with (
        LocalWriter(place, arguments=["--token-file", str(tokens.service)]) as guarded,
        runtime_confs(spark, {ENDPOINT: guarded.tcp_endpoint, "spark.updraft.write.tokenFile": str(tokens.client)}),
        ThreadPoolExecutor() as executor,
    ):
        done = executor.submit(writes)
        try:
            for number in range(_ROTATIONS):
                tokens.rotate()
                # Its actions and its files need the current token.
                write(spark.range(1), place / f"after-{number}", "updraft-parquet")
        finally:
            rotated.set()
        assert done.result() > 0
