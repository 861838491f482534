# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pyarrow as pa
import pytest
from on_gpu.gpu_files import CPU, KEYS, written
from pyarrow import orc
from spark_like import orc_table

from updraft.v1.write_pb2 import Codec, Compression, OrcOptions
from updraft_writer.gpu.gpu import Gpu

# Columns that the GPU does not write as ORC.
_OF_THE_CPU = ["flag", "float", "double", "map", "bytes", "wall_clock"]


def table_of_orc(rows: int) -> pa.Table:
    return orc_table(rows).drop_columns(_OF_THE_CPU)


def file(data: bytes) -> orc.ORCFile:
    return orc.ORCFile(pa.BufferReader(data))


def assert_equal(gpu: Gpu, options: OrcOptions, *tables: pa.Table) -> orc.ORCFile:
    ours, theirs = (file(written(where, options, *tables)) for where in (gpu, CPU))
    assert ours.schema == theirs.schema
    assert ours.read().equals(theirs.read())
    assert ours.metadata == theirs.metadata == {key.encode(): value.encode() for key, value in KEYS.items()}
    return ours


def test_every_type_that_spark_has_is_stored_as_on_the_cpu(gpu: Gpu) -> None:
    table = table_of_orc(10_000)
    assert_equal(gpu, OrcOptions(), table, table.slice(17, 1234))


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "ZSTD", "LZ4", "GZIP"])
def test_codecs(gpu: Gpu, codec: str) -> None:
    options = OrcOptions(compression=Compression(codec=f"CODEC_{codec}"))
    shown = {"NONE": "UNCOMPRESSED", "GZIP": "ZLIB"}.get(codec, codec)
    assert assert_equal(gpu, options, table_of_orc(50_000)).compression == shown


def test_stripes_are_as_large_as_asked_for(gpu: Gpu) -> None:
    table = pa.table({"n": pa.array([hash(str(index)) for index in range(500_000)], pa.int64())})
    small = assert_equal(gpu, OrcOptions(stripe_bytes=512 * 1024), table)
    assert small.nstripes > assert_equal(gpu, OrcOptions(), table).nstripes


def test_dates_before_1582(gpu: Gpu) -> None:
    table = pa.table({"d": pa.array([dt.date(1582, 10, 4), None, dt.date(1, 1, 1)])})
    assert_equal(gpu, OrcOptions(compression=Compression(codec=Codec.CODEC_ZSTD)), table)
