# SPDX-License-Identifier: Apache-2.0
"""Readers that skip rows by statistics, page indexes, dictionaries and bloom filters find every row that matches."""

import operator as op
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyspark
import pytest
import skipping
from pyarrow.orc import ORCFile
from pyspark.sql import SparkSession
from skipping import CASES, ORC_CASES, Case
from spark_filters import assert_spark_finds
from spark_oracle import confs

from updraft.v1.write_pb2 import BloomFilter, Dictionaries, OrcOptions, ParquetOptions, Rebase, TimestampType
from updraft_writer.encoders.orc import OrcEncoder
from updraft_writer.encoders.parquet import ParquetEncoder

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": op.eq,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
    "<>": op.ne,
}
_ROWS = skipping.table(CASES).num_rows
# Spark does not skip by elements of lists and maps. The others are stored and filtered like columns that it does read.
_NOT_IN_SPARK = ("float_edges", "double", "double_in_list", "double_in_map", "short", "long_in_struct")
# Spark's row readers skip with the same code as its batch readers.
_READ_BY_ROW = ("double_in_struct", "text")


def blooms(cases: list[Case]) -> list[BloomFilter]:
    return [BloomFilter(column=case.leaf, distinct_values=100) for case in cases if case.data_type != pa.bool_()]


def parquet_files(cases: list[Case]) -> dict[str, ParquetOptions]:
    """Return the options of a file with everything that readers skip by, and of one that stores types differently."""
    return {
        "filters": ParquetOptions(
            dictionaries=Dictionaries.DICTIONARIES_ALWAYS,
            timestamps=TimestampType.TIMESTAMP_TYPE_MICROS,
            page_bytes=16,
            page_index=True,
            bloom_filters=blooms(cases),
        ),
        "plain": ParquetOptions(
            dictionaries=Dictionaries.DICTIONARIES_NEVER,
            timestamps=TimestampType.TIMESTAMP_TYPE_MILLIS,
            page_bytes=16,
            legacy_decimals=True,
        ),
    }


def write_parquet(cases: list[Case], root: Path, files: dict[str, ParquetOptions]) -> Path:
    """Write the files below `root`; each has different rows."""
    root.mkdir()
    for index, (name, options) in enumerate(files.items()):
        tables = skipping.row_groups(cases, first_id=index * _ROWS)
        encoder = ParquetEncoder(tables[0].schema, options, {"org.apache.spark.version": pyspark.__version__})
        pieces = [piece for table in tables for piece in encoder.write(table)]
        (root / f"{name}.parquet").write_bytes(b"".join(pieces + encoder.close()))
    return root


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parquet(CASES, tmp_path_factory.mktemp("parquet") / "files", parquet_files(CASES))


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark: SparkSession) -> Iterator[None]:
    # There are hundreds of small queries, and compiling them would take longer than running them.
    with confs(spark, {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}):
        yield


def test_spark_finds_in_parquet(spark: SparkSession, parquet: Path) -> None:
    cases = [case for case in CASES if case.spark and case.name not in _NOT_IN_SPARK]
    assert_spark_finds(spark, str(parquet / "filters.parquet"), "parquet", cases)


def test_spark_finds_in_parquet_row_by_row(spark: SparkSession, parquet: Path) -> None:
    with confs(spark, {"spark.sql.parquet.enableVectorizedReader": "false"}):
        cases = [case for case in CASES if case.name in _READ_BY_ROW]
        assert_spark_finds(spark, str(parquet / "filters.parquet"), "parquet", cases)


def test_duckdb_finds_in_parquet(parquet: Path) -> None:
    assert_duckdb_finds(parquet, CASES)


def assert_duckdb_finds(parquet: Path, cases: list[Case]) -> None:
    conditions: list[tuple[str, list[Any]]] = []
    for case in cases:
        kind = case.duckdb or case.spark
        column = {"struct": f"{case.name}.x", "list": f"{case.name}[1]", "map": f"{case.name}['k']"}.get(
            case.place, case.name
        )
        conditions += [(f"{column} IS NULL", []), (f"{column} IS NOT NULL", [])]
        for operator, values in skipping.filters(case):
            literals = ", ".join([f"CAST(? AS {kind})"] * len(values))
            texts = [value if isinstance(value, bytes) else skipping.text(value) for value in values]
            conditions.append((f"{column} {operator} ({literals})", texts))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW found AS FROM read_parquet('{parquet}/*.parquet')")
        connection.execute("CREATE TABLE there AS FROM found")

        def answers(source: str) -> list[list[int]]:
            queries = ((f"SELECT id FROM {source} WHERE {condition}", values) for condition, values in conditions)
            return [[row[0] for row in connection.execute(query, values).fetchall()] for query, values in queries]

        assert skipping.wrong(conditions, answers("found"), answers("there")) == []


def test_polars_finds_in_parquet(parquet: Path) -> None:
    conditions: list[tuple[str, str, Any]] = []
    expressions: list[pl.Expr] = []
    for case in CASES:
        column = pl.col(case.name)
        match case.place:
            case "struct":
                column = column.struct.field("x")
            case "list":
                column = column.list.get(0)
            case "map":
                # pyarrow has no expression for a map's value.
                continue
        conditions += [(case.name, "IS NULL", None), (case.name, "IS NOT NULL", None)]
        expressions += [column.is_null(), column.is_not_null()]
        for operator, values in skipping.filters(case):
            literals = pl.lit(pl.Series(pa.array(values, case.data_type)))
            conditions.append((case.name, operator, values))
            expressions.append(
                column.is_in(literals.implode()) if operator == "IN" else _COMPARED[operator](column, literals.first())
            )
    found = pl.scan_parquet(f"{parquet}/*.parquet", cast_options=pl.ScanCastOptions(datetime_cast="millisecond-upcast"))
    answers = [
        [frame.filter(one).select("id").collect()["id"].to_list() for one in expressions]
        for frame in (found, found.collect().lazy())
    ]
    assert skipping.wrong(conditions, *answers) == []


def test_pyarrow_finds_in_parquet(parquet: Path) -> None:
    assert_pyarrow_finds(ds.dataset(parquet), CASES)


def assert_pyarrow_finds(files: ds.Dataset, cases: list[Case]) -> None:
    conditions: list[tuple[str, str, Any]] = []
    expressions: list[pc.Expression] = []
    for case in cases:
        column = {
            "column": pc.field(case.name),
            "struct": pc.field(case.name, "x"),
            "list": pc.list_element(pc.field(case.name), 0),
            "map": pc.map_lookup(pc.field(case.name), "k", "first"),
        }[case.place]
        conditions += [(case.name, "IS NULL", None), (case.name, "IS NOT NULL", None)]
        expressions += [column.is_null(), column.is_valid()]
        for operator, values in skipping.filters(case):
            if case.data_type == pa.float16():
                # pyarrow cannot compare half floats.
                continue
            if operator == "IN" and 0.0 in values and pa.types.is_floating(case.data_type):
                # pyarrow's `is_in` distinguishes 0.0 from -0.0, but treats the bounds -0.0 and 0.0 as a single value.
                continue
            literals = pa.array(values, case.data_type)
            conditions.append((case.name, operator, values))
            expressions.append(column.isin(literals) if operator == "IN" else _COMPARED[operator](column, literals[0]))
    answers = [
        [source.filter(one).to_table(["id"])["id"].to_pylist() for one in expressions]
        for source in (files, ds.dataset(files.to_table()))
    ]
    assert skipping.wrong(conditions, *answers) == []


@pytest.mark.parametrize("pages", [True, False])
def test_instants_are_found_in_int96(spark: SparkSession, tmp_path: Path, *, pages: bool) -> None:
    cases = [case for case in CASES if case.name == "instant"]
    options = ParquetOptions(timestamps=TimestampType.TIMESTAMP_TYPE_INT96, page_bytes=16, page_index=pages)
    files = write_parquet(cases, tmp_path / "files", {"int96": options})
    assert_spark_finds(spark, str(files), "parquet", cases)
    assert_duckdb_finds(files, cases)
    # INT96 has no time zone.
    found = [replace(case, name="instant") for case in CASES if case.name == "wall_clock"]
    read = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    assert_pyarrow_finds(ds.dataset(files, format=read), found)


@pytest.fixture(scope="module")
def orc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a stripe for each row group, because ORC's strides are longer."""
    path = tmp_path_factory.mktemp("orc") / "stripes.orc"
    tables = skipping.row_groups(ORC_CASES)
    options = OrcOptions(bloom_filter_columns=tables[0].column_names, stripe_bytes=1)
    encoder = OrcEncoder(tables[0].schema, options, {}, max_stripe_bytes=1 << 26)
    path.write_bytes(b"".join([piece for table in tables for piece in encoder.write(table)] + encoder.close()))
    assert ORCFile(path).nstripes == len(tables)
    return path


def test_spark_finds_in_orc(spark: SparkSession, orc: Path) -> None:
    assert_spark_finds(spark, str(orc), "orc", [case for case in ORC_CASES if case.name not in _NOT_IN_SPARK])


def test_spark_finds_in_orc_row_by_row(spark: SparkSession, orc: Path) -> None:
    with confs(spark, {"spark.sql.orc.enableVectorizedReader": "false"}):
        assert_spark_finds(spark, str(orc), "orc", [case for case in ORC_CASES if case.name in _READ_BY_ROW])


def test_spark_tells_zeros_apart_in_its_own_orc_files_too(spark: SparkSession, tmp_path: Path) -> None:
    # The reason why the writer promises nothing about zeros. If this fails, ORC's reader may have been fixed.
    spark.sql("SELECT -0.0D AS d").write.orc(str(tmp_path / "theirs"))
    assert spark.read.orc(str(tmp_path / "theirs")).where("d = 0.0D").count() == 0


def test_spark_finds_old_dates_and_times_in_files_for_spark_2(spark: SparkSession, tmp_path: Path) -> None:
    cases = [case for case in CASES if case.name in ("date", "instant", "wall_clock")]
    legacy = ParquetOptions(
        rebase=Rebase.REBASE_LEGACY, int96_rebase=Rebase.REBASE_LEGACY, time_zone="UTC", page_index=True, page_bytes=16
    )
    with confs(spark, {"spark.sql.session.timeZone": "UTC"}):
        files = write_parquet(cases, tmp_path / "files", {"legacy": legacy})
        assert_spark_finds(spark, str(files), "parquet", cases)
