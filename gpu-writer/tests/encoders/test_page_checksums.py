# SPDX-License-Identifier: Apache-2.0
"""Page checksums added to a file without any; the oracle is the same library with its own checksums."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from device_for_tests import DeviceForTests, gpu_of
from spark_like import spark_table

from updraft.errors import EncodeError
from updraft.v1.write_pb2 import ParquetOptions, WriteCommand
from updraft_writer.encoders.page_checksums import PageChecksums
from updraft_writer.encoders.thrift import Reader, decoded, encoded
from updraft_writer.file_factory import choose_encoder

TABLE = spark_table(20_000)


def library_file(table: pa.Table = TABLE, **options: Any) -> tuple[bytes, int]:
    """Return a file of three row groups, and where its pages end."""
    file = io.BytesIO()
    arguments = {"compression": "snappy", "data_page_size": 4096, "store_schema": False, **options}
    writer = pq.ParquetWriter(file, table.schema, **arguments)
    for _ in range(3):
        writer.write_table(table)
    end_of_pages = file.tell()
    writer.close()
    return file.getvalue(), end_of_pages


def with_checksums(data: bytes, end_of_pages: int, step: int) -> bytes:
    checksums = PageChecksums()
    pages = memoryview(data)[:end_of_pages]
    parts = [bytes(part) for at in range(0, end_of_pages, step) for part in checksums.add(pages[at : at + step])]
    return b"".join(parts) + checksums.end(data[end_of_pages:])


@pytest.mark.parametrize("page_index", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"compression": "none"}, {"use_dictionary": False}, {"write_statistics": False}]
)
def test_the_file_is_the_one_that_the_library_writes_with_checksums(options: dict[str, Any], page_index: bool) -> None:
    data, end_of_pages = library_file(write_page_index=page_index, **options)
    expected, _ = library_file(write_page_index=page_index, write_page_checksum=True, **options)
    assert with_checksums(data, end_of_pages, step=end_of_pages) == expected


@pytest.mark.parametrize("step", [1000, 65536])
def test_pages_may_arrive_in_any_parts(step: int) -> None:
    data, end_of_pages = library_file()
    assert with_checksums(data, end_of_pages, step) == library_file(write_page_checksum=True)[0]


def test_columns_without_data_pages_are_no_exception() -> None:
    data, end_of_pages = library_file(TABLE.slice(0, 0))
    expected, _ = library_file(TABLE.slice(0, 0), write_page_checksum=True)
    assert with_checksums(data, end_of_pages, step=1 << 20) == expected


def test_bytes_that_are_not_pages_are_an_error() -> None:
    data, end_of_pages = library_file()
    with pytest.raises(EncodeError, match="the bytes after a page are not a page header"):
        list(PageChecksums().add(memoryview(b"PAR1" + bytes([0x1C, 0x00, 0x00, 0x00]))))
    checksums = PageChecksums()
    list(checksums.add(memoryview(data)[: end_of_pages - 1]))
    with pytest.raises(EncodeError, match="ended the file within a page"):
        checksums.end(data[end_of_pages:])
    with pytest.raises(EncodeError, match="but no page begins there"):
        PageChecksums().end(data[end_of_pages:])


def test_a_library_with_checksums_of_its_own_is_an_error() -> None:
    data, end_of_pages = library_file(write_page_checksum=True)
    with pytest.raises(EncodeError, match="has begun to write page checksums"):
        list(PageChecksums().add(memoryview(data)[:end_of_pages]))


def test_a_footer_stays_the_same_when_it_is_decoded_and_encoded() -> None:
    data, _ = library_file(write_page_index=True)
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8]
    assert encoded(decoded(Reader(footer))) == footer


@pytest.mark.parametrize("page_index", [False, True])
def test_a_file_of_a_device_has_the_checksums_that_spark_asks_for(page_index: bool) -> None:
    command = WriteCommand(parquet=ParquetOptions(page_checksums=True, page_index=page_index))
    encoder = choose_encoder(command, TABLE.schema, gpu_of(DeviceForTests()), max_stripe_bytes=0)
    pieces = encoder.write(TABLE) + encoder.write(TABLE.slice(7, 100))
    data = b"".join(pieces + encoder.close())
    assert encoder.on_gpu, encoder.reason
    read = pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
    assert read.num_rows == encoder.footer.rows == TABLE.num_rows + 100
    broken = bytearray(data)
    broken[pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0).data_page_offset + 60] ^= 1
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        pq.read_table(pa.BufferReader(bytes(broken)), page_checksum_verification=True)
