# SPDX-License-Identifier: Apache-2.0
"""Writes whose every exchange with a writer is on record: one small file each, and the same each time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.flight import FlightData
from updraft.v1.write_pb2 import WriteReplyMetadata

RECORD = Path(__file__).with_name("0.1-writer.jsonl")
ENDPOINT = "spark.updraft.write.endpoint"
DELIVERY = "spark.updraft.write.delivery"


class Write(NamedTuple):
    """Format, and which side stores the file."""

    format: str
    delivery: str

    @property
    def confs(self) -> Mapping[str, str]:
        """Confs of the session that writes."""
        return {DELIVERY: self.delivery, "spark.updraft.write.unsupported": "fail"}

    def run(self, spark: SparkSession, directory: Path) -> None:
        """Replace a directory's contents by the rows."""
        rows(spark).write.format(f"updraft-{self.format}").mode("overwrite").save(str(directory))


WRITES: Mapping[str, Write] = {
    "parquet, returned": Write("parquet", "return"),
    "orc, returned": Write("orc", "return"),
    "parquet, stored": Write("parquet", "direct"),
}


def rows(spark: SparkSession) -> DataFrame:
    """Return the rows of every file, in order."""
    text = F.when(F.col("id") % 3 > 0, F.concat(F.lit("n"), F.col("id")))
    return spark.range(0, 10, 1, 1).select("id", text.alias("text"), (F.col("id") / 4).alias("quarter"))


def returned_file(replies: Iterable[bytes]) -> bytes:
    """Return the bytes of the file that a writer has sent back."""
    pieces: dict[int, bytes] = {}
    for reply in replies:
        data = FlightData.FromString(reply)
        metadata = WriteReplyMetadata.FromString(data.app_metadata)
        if metadata.WhichOneof("event") == "offset":
            pieces[metadata.offset] = data.data_body
    return b"".join(piece for _, piece in sorted(pieces.items()))


def read(file_format: str, content: bytes | Path) -> pa.Table:
    """Read the rows of a file, regardless of its writer."""
    source = content if isinstance(content, Path) else pa.BufferReader(content)
    return pa.orc.ORCFile(source).read() if file_format == "orc" else pa.parquet.read_table(source)
