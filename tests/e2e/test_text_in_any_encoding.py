# SPDX-License-Identifier: Apache-2.0
"""Text that is not UTF-8 passes through functions as on stock, which fails if Python reads it as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Query, Sides
from tests.support.spark import SPARK_VERSION

# "Müller" and "Größe" in Latin-1, alone and nested.
_LATIN_1 = (
    "select cast(X'{0}' as string) t, array(cast(X'{0}' as string), null) l, map(1, cast(X'{0}' as string), 2, null) m"
)


def _texts(spark: SparkSession) -> DataFrame:
    rows = (_LATIN_1.format(text) for text in ("4DFC6C6C6572", "416E6E", "4772F6DF65"))
    return spark.sql(" union all ".join(rows)).coalesce(1)


def _shown(frame: DataFrame) -> DataFrame:
    """Return the rows in hexadecimal, because Python could not read the texts themselves."""
    return frame.select(F.hex("t"), F.transform("l", F.hex), F.hex(F.col("m")[1]))


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _counted(texts: pa.Array) -> int:
    return len(texts)


def _queries() -> Mapping[str, Query]:
    schema = "t string, l array<string>, m map<int, string>"
    queries: dict[str, Query] = {
        "mapInArrow": lambda spark: _shown(_texts(spark).mapInArrow(_unchanged, schema)),
        "applyInArrow": lambda spark: _shown(
            _texts(spark).groupBy(F.length("t") > 3).applyInArrow(lambda table: table.select(["t", "l", "m"]), schema)
        ),
    }
    if SPARK_VERSION >= (4, 1):
        queries["arrow_udf"] = lambda spark: _texts(spark).select(F.hex(F.arrow_udf(lambda t: t, "string")("t")))
        queries["aggregate"] = lambda spark: _texts(spark).groupBy().agg(F.arrow_udf(_counted, "bigint")("t"))
    return queries


@pytest.mark.parametrize("name", _queries())
def test_arrow_functions_get_and_return_the_bytes_of_the_text(sides: Sides, name: str) -> None:
    sides.assert_same(_queries()[name])


def test_a_function_that_reads_the_text_gets_what_it_gets_on_stock(sides: Sides) -> None:
    def query(spark: SparkSession) -> DataFrame:
        return _texts(spark).select(F.udf(lambda text: text)("t"))

    for answer in (sides.stock(query), sides.updraft(query)):
        if SPARK_VERSION < (4, 0):
            # Spark 3.5 pickles its text with replacement characters.
            assert answer.rows == [("M\ufffdller",), ("Ann",), ("Gr\ufffd\ufffde",)]
        else:
            assert "UnicodeDecodeError" in str(answer.error)
