# SPDX-License-Identifier: Apache-2.0
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from spark_like import UTC, spark_table

from updraft.errors import WriteOptionError
from updraft.v1.write_pb2 import Codec, Compression, OrcOptions
from updraft_writer.encoders.orc import OrcEncoder


def written(*tables: pa.Table, **options: Any) -> orc.ORCFile:
    encoder = OrcEncoder(tables[0].schema, OrcOptions(**options), {}, max_stripe_bytes=1 << 30)
    pieces = [piece for table in tables for piece in encoder.write(table)]
    return orc.ORCFile(pa.BufferReader(b"".join(pieces + encoder.close())))


def test_every_type_that_spark_has_comes_back_as_it_was() -> None:
    table = spark_table()
    got = written(table, table).read().drop_columns(["instant"])
    assert got.to_pylist() == pa.concat_tables([table, table]).drop_columns(["instant"]).to_pylist()


def test_an_instant_is_the_wall_clock_of_the_writer_s_time_zone() -> None:
    table = pa.table({"t": pa.array([dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC), None], UTC)})
    got = written(table, time_zone="Europe/Prague").read()
    assert got.schema.field("t").type == pa.timestamp("ns")
    assert got["t"].cast(pa.timestamp("us")).to_pylist() == [dt.datetime(2026, 7, 1, 14), None]


@pytest.mark.parametrize(
    ("codec", "shown"),
    [
        (Codec.CODEC_UNSPECIFIED, "SNAPPY"),
        (Codec.CODEC_NONE, "UNCOMPRESSED"),
        (Codec.CODEC_ZSTD, "ZSTD"),
        (Codec.CODEC_LZ4, "LZ4"),
        (Codec.CODEC_GZIP, "ZLIB"),
    ],
)
def test_codecs_are_spark_s(codec: Codec, shown: str) -> None:
    assert written(spark_table(), compression=Compression(codec=codec)).compression == shown


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (pa.schema({"a": pa.month_day_nano_interval()}), {}, "cannot be written as ORC"),
        (pa.schema({"a": pa.list_(UTC)}), {}, "'a': ORC timestamps inside of nested columns"),
        (pa.schema({"a": UTC}), {"time_zone": "Nowhere/City"}, "no time zone 'Nowhere/City'"),
        (pa.schema({"a": UTC}), {"compression": Compression(codec=Codec.CODEC_ZSTD, level=3)}, "no compression levels"),
    ],
)
def test_what_orc_cannot_do_is_refused_before_any_data(schema: pa.Schema, options: dict[str, Any], says: str) -> None:
    with pytest.raises(WriteOptionError, match=says):
        OrcEncoder(schema, OrcOptions(**options), {}, max_stripe_bytes=1 << 30)


def test_footer_keys_are_refused_rather_than_lost() -> None:
    with pytest.raises(WriteOptionError, match="footer of an ORC file"):
        OrcEncoder(
            pa.schema({"a": pa.int64()}), OrcOptions(), {"org.apache.spark.version": "4.3.0"}, max_stripe_bytes=1
        )


def test_stripes_are_as_large_as_asked_for() -> None:
    table = pa.table({"n": pa.array([hash(str(index)) for index in range(200_000)], pa.int64())})
    assert written(table, stripe_bytes=256 * 1024).nstripes > written(table).nstripes


def test_a_file_without_rows_has_its_schema() -> None:
    empty = pa.schema({"a": pa.int64(), "s": pa.string()}).empty_table()
    got = written(empty)
    assert (got.nrows, got.schema.names) == (0, ["a", "s"])
