# SPDX-License-Identifier: Apache-2.0
"""Readers that skip rows by statistics, page indexes, dictionaries and bloom filters find every row that matches."""

import operator as op
from collections.abc import Callable, Iterator
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
from pyspark.sql import SparkSession
from skipping import CASES, FLOATS, ORC_CASES, Case
from spark_filters import assert_spark_finds
from spark_oracle import confs, local_spark

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
_OF_POLARS = _COMPARED | {"IN": lambda column, value: column.is_in(value.implode())}
_OF_PYARROW = _COMPARED | {"IN": lambda column, value: column.isin(pa.array([value]))}
_ROWS = skipping.table(CASES).num_rows
# A duration is an integer to them, in a file of Parquet.
_CASES_OF_OTHERS = [case for case in CASES if case.name != "interval"]
_SPARK_CASES = [case for case in CASES if case.spark]


def blooms(cases: list[Case]) -> list[BloomFilter]:
    return [BloomFilter(column=case.leaf, distinct_values=100) for case in cases if case.data_type != pa.bool_()]


def parquet_files(cases: list[Case]) -> dict[str, ParquetOptions]:
    """One file with all that readers skip by, and one with the other ways to store the types."""
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


def write_parquet(cases: list[Case], root: Path, files: dict[str, ParquetOptions]) -> pa.Table:
    """The rows of the files below `root`; each file has rows of its own."""
    root.mkdir()
    rows: list[pa.Table] = []
    for index, (name, options) in enumerate(files.items()):
        tables = skipping.row_groups(cases, first_id=index * _ROWS)
        encoder = ParquetEncoder(tables[0].schema, options, {"org.apache.spark.version": pyspark.__version__})
        pieces = [piece for table in tables for piece in encoder.write(table)]
        (root / f"{name}.parquet").write_bytes(b"".join(pieces + encoder.close()))
        rows += tables
    return pa.concat_tables(rows)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    root = tmp_path_factory.mktemp("parquet") / "files"
    return root, write_parquet(CASES, root, parquet_files(CASES))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # Hundreds of small queries: to compile them would take longer than to run them.
    compile_nothing = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    with local_spark() as spark, confs(spark, compile_nothing):
        yield spark


@pytest.mark.parametrize(("vectorized", "cases"), [("true", _SPARK_CASES), ("false", [c for c in FLOATS if c.spark])])
def test_spark_finds_in_parquet(
    spark: SparkSession, parquet: tuple[Path, pa.Table], vectorized: str, cases: list[Case]
) -> None:
    root, rows = parquet
    with confs(spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        assert_spark_finds(spark, str(root / "filters.parquet"), "parquet", rows.slice(0, _ROWS), cases)


def test_duckdb_finds_in_parquet(parquet: tuple[Path, pa.Table]) -> None:
    root, _ = parquet
    conditions: list[tuple[str, list[Any]]] = []
    for case in _CASES_OF_OTHERS:
        kind = case.duckdb or case.spark
        column = {"struct": f"{case.name}.x", "list": f"{case.name}[1]", "map": f"{case.name}['k']"}.get(
            case.place, case.name
        )
        conditions += [(f"{column} IS NULL", []), (f"{column} IS NOT NULL", [])]
        conditions += [
            (f"{column} {operator} (CAST(? AS {kind}))", [value if isinstance(value, bytes) else skipping.text(value)])
            for operator, value in skipping.filters(case)
        ]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW found AS FROM read_parquet('{root}/*.parquet')")
        connection.execute("CREATE TABLE there AS FROM found")

        def answers(source: str) -> list[list[int]]:
            queries = ((f"SELECT id FROM {source} WHERE {condition}", values) for condition, values in conditions)
            return [[row[0] for row in connection.execute(query, values).fetchall()] for query, values in queries]

        assert skipping.wrong(conditions, answers("found"), answers("there")) == []


def test_polars_finds_in_parquet(parquet: tuple[Path, pa.Table]) -> None:
    root, _ = parquet
    conditions: list[tuple[str, str, Any]] = []
    expressions: list[pl.Expr] = []
    for case in _CASES_OF_OTHERS:
        column = pl.col(case.name)
        match case.place:
            case "struct":
                column = column.struct.field("x")
            case "list":
                column = column.list.get(0)
            case "map":
                # It has no expression for the value of a key.
                continue
        conditions += [(case.name, "IS NULL", None), (case.name, "IS NOT NULL", None)]
        expressions += [column.is_null(), column.is_not_null()]
        for operator, value in skipping.filters(case):
            literal = pl.lit(pl.Series(pa.array([value], case.data_type))).first()
            conditions.append((case.name, operator, value))
            expressions.append(_OF_POLARS[operator](column, literal))
    found = pl.scan_parquet(f"{root}/*.parquet", cast_options=pl.ScanCastOptions(datetime_cast="millisecond-upcast"))
    answers = [
        [frame.filter(one).select("id").collect()["id"].to_list() for one in expressions]
        for frame in (found, found.collect().lazy())
    ]
    assert skipping.wrong(conditions, *answers) == []


def test_pyarrow_finds_in_parquet(parquet: tuple[Path, pa.Table]) -> None:
    root, _ = parquet
    conditions: list[tuple[str, str, Any]] = []
    expressions: list[pc.Expression] = []
    for case in _CASES_OF_OTHERS:
        column = {
            "column": pc.field(case.name),
            "struct": pc.field(case.name, "x"),
            "list": pc.list_element(pc.field(case.name), 0),
            "map": pc.map_lookup(pc.field(case.name), "k", "first"),
        }[case.place]
        conditions += [(case.name, "IS NULL", None), (case.name, "IS NOT NULL", None)]
        expressions += [column.is_null(), column.is_valid()]
        for operator, value in skipping.filters(case):
            if case.data_type == pa.float16():
                # It does not compare them.
                continue
            if operator == "IN" and value == 0.0 and pa.types.is_floating(case.data_type):
                # Its `is_in` tells 0.0 from -0.0, and then takes the bounds -0.0 and 0.0 for one value.
                continue
            conditions.append((case.name, operator, value))
            expressions.append(_OF_PYARROW[operator](column, pa.scalar(value, case.data_type)))
    files = ds.dataset(root)
    answers = [
        [source.filter(one).to_table(["id"])["id"].to_pylist() for one in expressions]
        for source in (files, ds.dataset(files.to_table()))
    ]
    assert skipping.wrong(conditions, *answers) == []


@pytest.fixture(scope="module")
def orc(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """A file for each row group, because stripes and strides of ORC are longer."""
    root = tmp_path_factory.mktemp("orc")
    tables = skipping.row_groups(ORC_CASES)
    for index, rows in enumerate(tables):
        options = OrcOptions(bloom_filter_columns=rows.column_names)
        encoder = OrcEncoder(rows.schema, options, {}, max_stripe_bytes=1 << 26)
        (root / f"{index}.orc").write_bytes(b"".join(encoder.write(rows) + encoder.close()))
    return root, pa.concat_tables(tables)


def test_spark_finds_in_orc(spark: SparkSession, orc: tuple[Path, pa.Table]) -> None:
    root, rows = orc
    assert_spark_finds(spark, str(root), "orc", rows, ORC_CASES)


def test_spark_tells_zeros_apart_in_its_own_orc_files_too(spark: SparkSession, tmp_path: Path) -> None:
    # Why the writer promises nothing about them; when this fails, ORC's reader may have learnt it.
    spark.sql("SELECT -0.0D AS d").write.orc(str(tmp_path / "theirs"))
    assert spark.read.orc(str(tmp_path / "theirs")).where("d = 0.0D").count() == 0


def test_spark_finds_old_dates_and_times_in_files_for_spark_2(spark: SparkSession, tmp_path: Path) -> None:
    cases = [case for case in CASES if case.name in ("date", "instant", "wall_clock")]
    legacy = ParquetOptions(
        rebase=Rebase.REBASE_LEGACY, int96_rebase=Rebase.REBASE_LEGACY, time_zone="UTC", page_index=True, page_bytes=16
    )
    with confs(spark, {"spark.sql.session.timeZone": "UTC"}):
        rows = write_parquet(cases, tmp_path / "files", {"legacy": legacy})
        assert_spark_finds(spark, str(tmp_path / "files"), "parquet", rows, cases)
