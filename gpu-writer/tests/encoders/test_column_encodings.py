# SPDX-License-Identifier: Apache-2.0
import decimal
import io
import itertools
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import metadata, read, without_zones, written
from spark_like import UTC

from updraft.v1.write_pb2 import Codec, Compression, Dictionaries, Encodings, ParquetOptions, TimestampType
from updraft_writer.encoders.column_encodings import ColumnEncodings, sampled_encodings
from updraft_writer.encoders.encoder import EncodedBytes
from updraft_writer.encoders.parquet import ParquetEncoder

COMPACT = Encodings.ENCODINGS_COMPACT
ROWS = 100_000
MIXED = pa.table(
    {
        "few": pa.array([f"value {index % 50}" for index in range(ROWS)]),
        "unique": pa.array([f"value {index}" for index in range(ROWS)]),
        "number": pa.array([index * 7919 for index in range(ROWS)], pa.int64()),
        "code": pa.array([index % 12 for index in range(ROWS)], pa.int64()),
        "flag": pa.array([index % 2 == 0 for index in range(ROWS)]),
        "price": pa.array([decimal.Decimal(index % 9) for index in range(ROWS)], pa.decimal128(20, 2)),
        "tags": pa.array([["a", "b"]] * ROWS, pa.list_(pa.string())),
        "null": pa.array([None] * ROWS, pa.string()),
    }
)


def encodings_of(data: bytes) -> dict[str, set[str]]:
    columns = metadata(data).row_group(0)
    found = [columns.column(index) for index in range(columns.num_columns)]
    return {column.path_in_schema: set(column.encodings) - {"RLE"} for column in found}


def compact(table: pa.Table, **options: Any) -> bytes:
    return written(table, encodings=COMPACT, **options)


def test_columns_of_few_values_get_a_dictionary_and_others_do_not() -> None:
    encoder = ParquetEncoder(MIXED.schema, ParquetOptions(encodings=COMPACT), {})
    encoder.write(MIXED)
    encoder.close()
    assert encoder.footer.dictionary_columns == ("few", "code", "price", "tags.list.element")
    assert encodings_of(compact(MIXED))["number"] == {"DELTA_BINARY_PACKED"}


@pytest.mark.parametrize("encodings", [Encodings.ENCODINGS_UNSPECIFIED, Encodings.ENCODINGS_COMPATIBLE])
@pytest.mark.parametrize("dictionaries", Dictionaries.values()[1:])
def test_compatible_encodings_are_plain_values_and_dictionaries(
    encodings: Encodings, dictionaries: Dictionaries
) -> None:
    texts = pa.table({"prefixed": [f"a common beginning {index:09}" for index in range(ROWS)], "id": list(range(ROWS))})
    for table in (MIXED, texts):
        data = written(table, encodings=encodings, dictionaries=dictionaries)
        assert set().union(*encodings_of(data).values()) <= {"PLAIN", "RLE_DICTIONARY"}
        assert read(data).equals(table)


def test_integers_with_few_values_get_a_dictionary_if_encodings_are_compatible() -> None:
    table = pa.table({"code": [index % 12 for index in range(ROWS)], "id": list(range(ROWS))})
    found = {"code": {"PLAIN", "RLE_DICTIONARY"}, "id": {"PLAIN"}}
    assert encodings_of(written(table)) == found


def test_integers_whose_neighbours_are_near_are_stored_as_differences_and_noise_is_not() -> None:
    choose = random.Random(1)
    steps = list(itertools.accumulate(choose.randrange(10**6) for _ in range(ROWS)))
    table = pa.table(
        {
            "noise": pa.array([choose.randrange(-(2**62), 2**62) for _ in range(ROWS)], pa.int64()),
            "id": pa.array([None if index % 9 == 0 else index for index in range(ROWS)], pa.int64()),
            "short": pa.array([index % 30_000 for index in range(ROWS)], pa.int16()),
            "at": pa.array(steps, UTC),
            "shown": pa.array(steps, pa.timestamp("us")),
            "price": pa.array([choose.randrange(2**20) for _ in range(ROWS)], pa.int64()),
            "cost": pa.array([decimal.Decimal(index) for index in range(ROWS)], pa.decimal128(18, 2)),
            "list": pa.array([[index, -index] for index in range(ROWS)], pa.list_(pa.int32())),
            "some": pa.array([f"some {index % 3}" for index in range(ROWS)]),
            "unsigned": pa.array([2**63 + index for index in range(ROWS)], pa.uint64()),
        }
    )
    difference, dictionary = {"DELTA_BINARY_PACKED"}, {"PLAIN", "RLE_DICTIONARY"}
    wanted = {
        "noise": {"PLAIN"},
        "id": difference,
        "short": difference,
        "at": difference,
        "shown": difference,
        "price": difference,
        "cost": difference,
        "list.list.element": difference,
        "some": dictionary,
        "unsigned": {"PLAIN"},
    }
    data = compact(table, timestamps=TimestampType.TIMESTAMP_TYPE_MICROS)
    assert encodings_of(data) == wanted
    assert read(data).equals(table)
    as_bytes = compact(table, legacy_decimals=True)
    assert encodings_of(as_bytes) == {**wanted, "at": {"PLAIN"}, "cost": {"PLAIN"}}
    assert without_zones(read(as_bytes)).equals(without_zones(table))


def test_integers_of_few_values_are_differences_unless_a_dictionary_makes_them_much_smaller() -> None:
    choose = random.Random(1)
    codes = [choose.randrange(1000) for _ in range(ROWS)]
    table = pa.table({"code": codes, "few": [code % 12 for code in codes], "far": [code * 10**9 for code in codes]})
    found = encodings_of(compact(table))
    difference, dictionary = {"DELTA_BINARY_PACKED"}, {"PLAIN", "RLE_DICTIONARY"}
    assert found == {"code": difference, "few": difference, "far": dictionary}


@pytest.mark.parametrize("level", [None, 3])
def test_a_column_that_its_codec_does_not_make_smaller_has_none(level: int | None) -> None:
    choose = random.Random(1)
    noise = [choose.randrange(-(2**62), 2**62) for _ in range(ROWS)]
    table = pa.table({"noise": noise, "text": [f"some text {n % 10**6}" for n in noise], "id": list(range(ROWS))})
    for rows, wanted in ((ROWS, {"noise": "UNCOMPRESSED", "text": "ZSTD"}), (1000, {"noise": "ZSTD", "text": "ZSTD"})):
        data = written(table.slice(0, rows), compression=Compression(codec=Codec.CODEC_ZSTD, level=level))
        columns = metadata(data).row_group(0)
        found = {columns.column(index).path_in_schema: columns.column(index).compression for index in range(2)}
        assert found == wanted
        assert read(data).equals(table.slice(0, rows))


def test_texts_that_begin_as_their_neighbours_do_say_what_they_share_unless_a_codec_gains_more() -> None:
    choose = random.Random(1)
    numbers = [choose.randrange(10**9) for _ in range(ROWS)]
    table = pa.table(
        {
            "name": [None if number % 20 == 0 else f"customer#{number}" for number in numbers],
            "key": [b"a long and common beginning %d" % number for number in numbers],
            "names": [[f"customer#{number}", f"customer#{number // 7}"] for number in numbers],
            "noise": [f"{choose.getrandbits(160):x}" for _ in numbers],
            "words": [f"{number % 997} {'the same words ' * (number % 7)}{number}" for number in numbers],
        }
    )
    data = compact(table)
    assert encodings_of(data) == {
        "name": {"DELTA_BYTE_ARRAY"},
        "key": {"DELTA_BYTE_ARRAY"},
        "names.list.element": {"DELTA_BYTE_ARRAY"},
        "noise": {"PLAIN"},
        "words": {"PLAIN"},
    }
    columns = metadata(data).row_group(0)
    codecs = [columns.column(index).compression for index in range(columns.num_columns)]
    assert codecs == ["UNCOMPRESSED", "UNCOMPRESSED", "UNCOMPRESSED", "UNCOMPRESSED", "SNAPPY"]
    assert read(data).equals(table)


@pytest.mark.parametrize(
    ("codec", "wanted"),
    [
        (Codec.CODEC_NONE, ["UNCOMPRESSED", "UNCOMPRESSED"]),
        (Codec.CODEC_SNAPPY, ["UNCOMPRESSED", "UNCOMPRESSED"]),
        (Codec.CODEC_ZSTD, ["ZSTD", "ZSTD"]),
        (Codec.CODEC_GZIP, ["GZIP", "GZIP"]),
    ],
)
def test_what_texts_share_spares_them_snappy_for_a_few_bytes_more_and_passes_through_codecs_for_small_files(
    codec: Codec, wanted: list[str]
) -> None:
    choose = random.Random(1)
    long, short = ([f"customer#{choose.randrange(digits)}" for _ in range(ROWS)] for digits in (10**19, 10**9))
    table = pa.table({"long": long, "short": short})
    data = compact(table, compression=Compression(codec=codec))
    assert read(data).equals(table)
    columns = [metadata(data).row_group(0).column(index) for index in range(2)]
    fronts = [column.compression if "DELTA_BYTE_ARRAY" in column.encodings else None for column in columns]
    assert fronts == wanted
    for column in columns:
        most = 5 / 4 if codec == Codec.CODEC_SNAPPY else 1
        assert column.total_compressed_size <= most * plain_bytes(table.select([column.path_in_schema]), codec)


def plain_bytes(table: pa.Table, codec: Codec) -> int:
    """Return the size of the only column with no encoding but the codec."""
    file = io.BytesIO()
    name = Codec.Name(codec).removeprefix("CODEC_").lower()
    pq.write_table(table, file, use_dictionary=False, compression=name)
    return int(pq.read_metadata(file).row_group(0).column(0).total_compressed_size)


def test_small_pieces_of_a_file_are_joined_to_a_mebibyte_or_more_and_none_is_lost() -> None:
    file = EncodedBytes()
    parts = [bytes([index]) * 300_000 for index in range(10)]
    for part in parts:
        file.write(part)
    pieces = file.take()
    assert [len(piece) for piece in pieces] == [1 << 20, 1 << 20, 3_000_000 - (2 << 20)]
    assert b"".join(pieces) == b"".join(parts)
    assert file.take() == []
    assert file.tell() == 3_000_000


@pytest.mark.parametrize("column", ["text", "binary"])
def test_pages_of_large_values_are_hardly_larger_than_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    sizes: list[int] = []
    keep = EncodedBytes.write

    def weighed(file: EncodedBytes, data: bytes) -> int:
        sizes.append(len(data))
        return keep(file, data)

    monkeypatch.setattr(EncodedBytes, "write", weighed)
    values = pa.array([str(index) * 2000 for index in range(1000)]).cast(
        pa.string() if column == "text" else pa.binary()
    )
    written(pa.table({column: values}), page_bytes=100_000, compression=Compression(codec=Codec.CODEC_NONE))
    assert max(sizes) < 2 * 100_000


def test_dictionaries_can_be_asked_for_everywhere_or_nowhere() -> None:
    chosen = {}
    for wanted in (Dictionaries.DICTIONARIES_ALWAYS, Dictionaries.DICTIONARIES_NEVER):
        encoder = ParquetEncoder(MIXED.schema, ParquetOptions(dictionaries=wanted), {})
        encoder.write(MIXED)
        encoder.close()
        chosen[wanted] = len(encoder.footer.dictionary_columns)
    assert chosen == {Dictionaries.DICTIONARIES_ALWAYS: 8, Dictionaries.DICTIONARIES_NEVER: 0}


def test_sampled_dictionaries_make_no_larger_file_than_all_dictionaries() -> None:
    always = written(MIXED, dictionaries=Dictionaries.DICTIONARIES_ALWAYS)
    assert len(compact(MIXED)) <= len(always)


def test_a_sample_of_no_rows_chooses_nothing() -> None:
    assert sampled_encodings(pa.table({"a": pa.array([], pa.string())}), ["a"]) == ColumnEncodings()


def test_columns_of_one_name_get_what_fits_all_of_them() -> None:
    """The library addresses columns by name, and has no delta encoding for booleans or texts."""
    rows = 20_000
    columns = [pa.array(range(rows)), pa.array([True] * rows), pa.array([f"text-{n:08}" for n in range(rows)])]
    table = pa.Table.from_arrays(columns, names=["a", "a", "a"])
    encoder = ParquetEncoder(table.schema, ParquetOptions(encodings=COMPACT), {})
    data = b"".join([*encoder.write(table), *encoder.close()])
    assert pq.ParquetFile(pa.py_buffer(data)).read().equals(table)
