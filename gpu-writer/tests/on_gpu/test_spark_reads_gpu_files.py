# SPDX-License-Identifier: Apache-2.0
"""Files of the GPU as Spark reads them, next to Spark's own files of the same rows; needs a JVM."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from on_gpu.gpu_files import written
from skipping import CASES, row_groups

from updraft.v1.write_pb2 import OrcOptions, ParquetOptions, TimestampType
from updraft_writer.gpu.gpu import Gpu

if not shutil.which("java") or importlib.util.find_spec("pyspark") is None:
    pytest.skip("no JVM or no pyspark on this machine", allow_module_level=True)

from spark_filters import assert_spark_finds
from spark_oracle import confs, everything, local_spark

# Nullable structs with non-nullable fields stay on the CPU, and so do these columns of ORC.
NOT_ON_GPU = ("never_null", "struct")
NOT_ORC_ON_GPU = (*NOT_ON_GPU, "flag", "float", "double", "bytes", "wall_clock")
NULLABLE_STRUCT = "if(id % 7 = 0, NULL, struct(long, text, instant, date, list)) AS group"
WANTED = "long = -1700000011900 OR text = 'řádek 17'"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with local_spark() as spark:
        yield spark


def rows_of(frame: Any) -> pa.Table:
    return pa.Table.from_batches(frame._collect_as_arrow())


@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_parquet(gpu: Gpu, spark: Any, tmp_path: Path, timestamps: str, vectorized: str) -> None:
    frame = everything(spark).drop(*NOT_ON_GPU).selectExpr("*", NULLABLE_STRUCT)
    kind = f"TIMESTAMP_TYPE_{timestamps.removeprefix('TIMESTAMP_')}"
    (tmp_path / "ours.parquet").write_bytes(written(gpu, ParquetOptions(timestamps=kind), rows_of(frame)))
    changes = {
        "spark.sql.parquet.outputTimestampType": timestamps,
        "spark.sql.parquet.enableVectorizedReader": vectorized,
    }
    with confs(spark, changes):
        frame.write.parquet(str(tmp_path / "theirs"))
        ours, theirs = (
            spark.read.schema(frame.schema).parquet(str(tmp_path / name)) for name in ("ours.parquet", "theirs")
        )
        assert ours.toArrow().equals(theirs.toArrow())
        assert ours.where(WANTED).count() == frame.where(WANTED).count() > 0


def test_orc(gpu: Gpu, spark: Any, tmp_path: Path) -> None:
    frame = everything(spark, instant_type="date").drop(*NOT_ORC_ON_GPU)
    frame = frame.selectExpr("*", NULLABLE_STRUCT)
    (tmp_path / "ours.orc").write_bytes(written(gpu, OrcOptions(), rows_of(frame)))
    frame.write.orc(str(tmp_path / "theirs"))
    ours, theirs = (spark.read.orc(str(tmp_path / name)) for name in ("ours.orc", "theirs"))
    assert ours.toArrow().equals(theirs.toArrow())
    assert ours.where(WANTED).count() == frame.where(WANTED).count() > 0


@pytest.mark.parametrize("dictionaries", ["DICTIONARIES_ALWAYS", "DICTIONARIES_NEVER"])
def test_every_row_that_matches_is_found(gpu: Gpu, spark: Any, tmp_path: Path, dictionaries: str) -> None:
    cases = [case for case in CASES if case.spark]
    options = ParquetOptions(
        dictionaries=dictionaries,
        timestamps=TimestampType.TIMESTAMP_TYPE_MICROS,
        page_bytes=1024,
        page_index=True,
    )
    tables = row_groups(cases)
    (tmp_path / "ours.parquet").write_bytes(written(gpu, options, *tables))
    assert_spark_finds(spark, str(tmp_path / "ours.parquet"), "parquet", cases)
