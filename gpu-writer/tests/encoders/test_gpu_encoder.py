# SPDX-License-Identifier: Apache-2.0
"""Files that use a device: the encoder they start with, and what happens if the device is full or fails."""

import pyarrow as pa
import pytest
from device_for_tests import DeviceForTests, gpu_of
from parquet_files import metadata, read
from pyarrow import orc

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import (
    BloomFilter,
    Codec,
    Compression,
    Dictionaries,
    Encodings,
    OrcOptions,
    ParquetOptions,
    TimestampType,
    WriteCommand,
)
from updraft_writer.encoders.encoder import Encoder
from updraft_writer.encoders.gpu import GpuEncoder
from updraft_writer.file_factory import choose_encoder
from updraft_writer.gpu.engine import DeviceError, DeviceMemoryError, DictionaryPolicy, ParquetPlan, Statistics
from updraft_writer.gpu.gpu import Gpu, find_engine
from updraft_writer.reason import Reason, ReasonKind

MIB = 1 << 20
ROWS = 10_000
TABLE = pa.table({"n": pa.array(range(ROWS), pa.int64())})
CPU = Reason(ReasonKind.ASKED, "the CPU's file, to compare with")
KEYS = {"org.apache.spark.version": "4.3.0"}
NO_ROOM = DeviceMemoryError("no room")
FAILED = DeviceError("the kernel failed")
PARQUET, ORC = WriteCommand(parquet=ParquetOptions(), footer=KEYS), WriteCommand(orc=OrcOptions(), footer=KEYS)


def encoder_for(gpu: Gpu | Reason, command: WriteCommand = PARQUET, schema: pa.Schema = TABLE.schema) -> Encoder:
    return choose_encoder(command, schema, gpu, max_stripe_bytes=1 << 26)


def test_a_file_is_encoded_on_the_device_where_there_is_one() -> None:
    device = DeviceForTests()
    encoder = encoder_for(gpu_of(device))
    data = b"".join(encoder.write(TABLE) + encoder.write(TABLE) + encoder.close())
    assert read(data)["n"].to_pylist() == 2 * list(range(ROWS))
    assert metadata(data).metadata == {b"org.apache.spark.version": b"4.3.0"}
    assert (encoder.name, encoder.reason.kind, encoder.on_gpu) == ("device-parquet", ReasonKind.GPU, True)
    assert (encoder.footer.row_groups, encoder.footer.rows, encoder.footer.dictionary_columns) == (2, 2 * ROWS, ("n",))
    assert str(encoder.reason).startswith("gpu: ")


def test_orc_gets_spark_s_footer_from_a_device_too() -> None:
    encoder = encoder_for(gpu_of(DeviceForTests()), ORC)
    file = orc.ORCFile(pa.BufferReader(b"".join(encoder.write(TABLE) + encoder.close())))
    assert file.read().equals(TABLE)
    assert file.metadata == {b"org.apache.spark.version": b"4.3.0"}
    assert (encoder.name, encoder.footer.rows) == ("device-orc", ROWS)


def test_a_timestamp_without_a_zone_is_named_in_the_footer_of_a_device() -> None:
    table = pa.table({"t": pa.array([1, None], pa.timestamp("us"))})
    encoder = encoder_for(gpu_of(DeviceForTests()), schema=table.schema)
    data = b"".join(encoder.write(table) + encoder.close())
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in str(metadata(data).schema.column(0).logical_type)
    assert read(data).equals(table)


@pytest.mark.parametrize(("failure", "kind"), [(NO_ROOM, ReasonKind.DEVICE_MEMORY), (FAILED, ReasonKind.DEVICE_FAILED)])
def test_a_file_that_cannot_begin_on_the_device_goes_to_the_cpu_whole(failure: DeviceError, kind: ReasonKind) -> None:
    encoder = encoder_for(gpu_of(DeviceForTests(failure)))
    data = b"".join(encoder.write(TABLE) + encoder.write(TABLE) + encoder.close())
    assert read(data)["n"].to_pylist() == 2 * list(range(ROWS))
    assert (encoder.name, encoder.on_gpu, encoder.footer.rows) == ("pyarrow-parquet", False, 2 * ROWS)
    assert (encoder.reason.kind, str(failure) in str(encoder.reason)) == (kind, True)


def test_a_row_group_for_which_there_is_no_room_any_more_is_encoded_in_parts() -> None:
    device = DeviceForTests(None)
    encoder = encoder_for(gpu_of(device))
    pieces = encoder.write(TABLE)
    device.most_rows = 3000
    data = b"".join(pieces + encoder.write(TABLE) + encoder.close())
    assert [table.num_rows for table in device.written] == [ROWS, 2500, 2500, 2500, 2500]
    assert read(data)["n"].to_pylist() == 2 * list(range(ROWS))
    assert encoder.footer.row_groups == 5


def test_a_file_that_has_begun_ends_with_an_error_when_not_even_few_rows_fit() -> None:
    device = DeviceForTests(None)
    encoder = encoder_for(gpu_of(device))
    encoder.write(TABLE)
    device.most_rows = 10
    with pytest.raises(EncodeError, match="rows after 10000: no room for 1250 rows"):
        encoder.write(TABLE)


def test_a_device_that_failed_for_good_gets_no_more_files() -> None:
    device = DeviceForTests(None, FAILED)
    gpu = gpu_of(device)
    waiting, encoder = encoder_for(gpu), encoder_for(gpu)
    encoder.write(TABLE)
    device.is_lost = True
    with pytest.raises(EncodeError, match="the kernel failed"):
        encoder.write(TABLE)
    later = encoder_for(gpu)
    assert (later.name, later.reason.kind) == ("pyarrow-parquet", ReasonKind.DEVICE_FAILED)
    assert read(b"".join(waiting.write(TABLE) + waiting.close())).equals(TABLE)
    assert waiting.reason == later.reason


def test_a_device_that_failed_once_is_used_again() -> None:
    gpu = gpu_of(DeviceForTests(FAILED))
    encoder_for(gpu).write(TABLE)
    encoder = encoder_for(gpu)
    encoder.write(TABLE)
    assert encoder.on_gpu


def test_a_footer_that_the_device_cannot_write_is_an_error() -> None:
    encoder = encoder_for(gpu_of(DeviceForTests(None, FAILED)))
    encoder.write(TABLE)
    with pytest.raises(EncodeError, match="the kernel failed"):
        encoder.close()


def test_bytes_that_could_not_be_kept_are_an_error_though_the_library_was_told_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(*_: object) -> int:
        raise MemoryError

    encoder = encoder_for(gpu_of(DeviceForTests()))
    monkeypatch.setattr("updraft_writer.encoders.encoder.EncodedBytes.write", no_memory)
    with pytest.raises(EncodeError, match="could not be stored: MemoryError"):
        encoder.write(TABLE)


def test_a_table_that_cannot_be_converted_for_the_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def invalid(*_: object) -> pa.Table:
        raise pa.ArrowInvalid("no such rows")

    monkeypatch.setattr("updraft_writer.encoders.gpu_layouts.device_table", invalid)
    with pytest.raises(EncodeError, match="cannot be copied to the GPU: no such rows"):
        encoder_for(gpu_of(DeviceForTests())).write(TABLE)


def test_a_file_without_rows_does_not_touch_the_device() -> None:
    device = DeviceForTests(FAILED)
    encoder = encoder_for(gpu_of(device))
    assert read(b"".join(encoder.close())).num_rows == 0
    assert (device.written, encoder.reason.kind) == ([], ReasonKind.NO_ROWS)


@pytest.mark.parametrize(
    ("command", "schema", "kind", "says"),
    [
        (
            {"parquet": {"compression": Compression(codec=Codec.CODEC_ZSTD, level=9)}},
            {},
            "OPTION",
            "level 9",
        ),
        ({"parquet": {"bloom_filters": [BloomFilter(column="n")]}}, {}, "OPTION", "bloom filters"),
        ({"parquet": {"legacy_decimals": True}}, {}, "OPTION", "legacy format"),
        ({"parquet": {"page_index": True, "statistics": False}}, {}, "OPTION", "a page index without statistics"),
        ({"parquet": {"page_bytes": 100}}, {}, "OPTION", "pages of 100 bytes"),
        ({"parquet": {"compression": Compression(codec=Codec.CODEC_GZIP)}}, {}, "CODEC", "lacks the codec gzip"),
        ({"parquet": {}}, {"t": pa.time64("us")}, "TYPE", "column 't' is time64"),
        ({"orc": {"bloom_filter_columns": ["n"]}}, {}, "OPTION", "bloom filters"),
        ({"orc": {"row_index_stride": 1001}}, {}, "OPTION", "a row index stride of 1001"),
        ({"orc": {}}, {"t": pa.list_(pa.timestamp("us"))}, "TYPE", "no time zone"),
        ({"orc": {}}, {"b": pa.struct({"b": pa.binary()})}, "TYPE", "binary"),
        ({"orc": {}}, {"f": pa.list_(pa.bool_())}, "TYPE", "boolean ORC columns"),
        ({"orc": {"compression": Compression(codec=Codec.CODEC_GZIP)}}, {}, "CODEC", "lacks the codec gzip"),
    ],
)
def test_what_the_device_lacks_keeps_a_file_on_the_cpu_with_the_reason(
    command: dict[str, dict[str, object]], schema: dict[str, pa.DataType], kind: str, says: str
) -> None:
    asked_for = WriteCommand(**command)  # type: ignore[arg-type]
    encoder = encoder_for(gpu_of(DeviceForTests()), asked_for, pa.schema({"n": pa.int64(), **schema}))
    assert encoder.name.startswith("pyarrow-")
    assert (encoder.reason.kind, says in str(encoder.reason)) == (ReasonKind[kind], True), encoder.reason


@pytest.mark.parametrize(("codec", "level"), [("zstd", 3), ("gzip", 6)])
def test_the_level_that_spark_s_commands_have_by_default_is_no_demand(codec: str, level: int) -> None:
    options = ParquetOptions(compression=Compression(codec=f"CODEC_{codec.upper()}", level=level))
    device = DeviceForTests(codecs=(codec,))
    assert encoder_for(gpu_of(device), WriteCommand(parquet=options)).on_gpu


def test_what_the_cpu_refuses_is_refused_on_a_device_too() -> None:
    command = WriteCommand(parquet=ParquetOptions(bloom_filters=[BloomFilter(column="nope")]))
    with pytest.raises(WriteOptionError, match="'nope'"):
        encoder_for(gpu_of(DeviceForTests()), command)
    with pytest.raises(WriteOptionError, match="'t' contains timestamp"):
        encoder_for(gpu_of(DeviceForTests()), ORC, pa.schema({"t": pa.timestamp("us", "UTC")}))


def test_the_options_of_a_file_reach_the_device() -> None:
    device = DeviceForTests(codecs=("zstd",))
    options = ParquetOptions(
        compression=Compression(codec=Codec.CODEC_ZSTD),
        page_index=True,
        page_bytes=4096,
        dictionaries=Dictionaries.DICTIONARIES_NEVER,
    )
    encoder_for(gpu_of(device), WriteCommand(parquet=options, footer=KEYS)).write(TABLE)
    [plan] = device.plans
    assert isinstance(plan, ParquetPlan)
    assert (plan.codec, plan.statistics, plan.dictionaries) == ("zstd", Statistics.PAGES, DictionaryPolicy.NEVER)
    assert (plan.page_bytes, plan.key_values) == (4096, KEYS)


@pytest.mark.parametrize(
    ("command", "memory_bytes", "joined_bytes"),
    [
        (PARQUET, 260 * MIB, 10 * MIB),
        (ORC, 260 * MIB, 10 * MIB),
        # The library's columns must stay below 2 GiB.
        (PARQUET, 1 << 40, 1 << 30),
        (WriteCommand(parquet=ParquetOptions(row_group_rows=1000)), 260 * MIB, 0),
        (WriteCommand(parquet=ParquetOptions(row_group_bytes=1 << 20)), 260 * MIB, 0),
    ],
)
def test_a_begun_file_takes_as_many_row_groups_as_leave_room_for_three_other_files(
    command: WriteCommand, memory_bytes: int, joined_bytes: int
) -> None:
    encoder = encoder_for(gpu_of(DeviceForTests(), memory_bytes=memory_bytes), command)
    assert isinstance(encoder, GpuEncoder)
    assert encoder.most_joined_bytes() == 0
    encoder.write(TABLE)
    assert encoder.most_joined_bytes() == joined_bytes


def test_a_file_on_the_cpu_joins_no_row_groups() -> None:
    encoder = encoder_for(gpu_of(DeviceForTests(NO_ROOM)))
    assert isinstance(encoder, GpuEncoder)
    encoder.write(TABLE)
    assert (encoder.on_gpu, encoder.most_joined_bytes()) == (False, 0)


def test_joined_row_groups_are_cut_again_where_the_client_wants_it() -> None:
    device = DeviceForTests()
    for wanted_bytes, cut_bytes in ((0, 144 * MIB), (64 * MIB, 72 * MIB), (16 * MIB, 24 * MIB)):
        encoder = encoder_for(gpu_of(device), WriteCommand(parquet=ParquetOptions(row_group_bytes=wanted_bytes)))
        encoder.write(TABLE)
        plan = device.plans[-1]
        assert isinstance(plan, ParquetPlan)
        assert plan.row_group_bytes == cut_bytes
    large = pa.table({"n": pa.array(range(8_000_000), pa.int64())})
    encoder.write(large)
    encoder.close()
    assert (encoder.footer.row_groups, encoder.footer.rows) == (1 + 3, ROWS + large.num_rows)


@pytest.mark.parametrize("encodings", [Encodings.ENCODINGS_COMPATIBLE, Encodings.ENCODINGS_COMPACT])
def test_columns_get_the_delta_encodings_of_the_cpu_s_encoder_if_they_may(encodings: Encodings) -> None:
    numbers = pa.array(range(40_000), pa.int64())
    names = pa.array([f"a name with a long common part {number:08}" for number in range(40_000)])
    pairs = pa.StructArray.from_arrays([numbers], names=["n"])
    table = pa.table({"n": numbers, "s": names, "p": pairs, "at": numbers.cast(pa.timestamp("us", "UTC"))})
    micros = TimestampType.TIMESTAMP_TYPE_MICROS
    options = ParquetOptions(encodings=encodings, timestamps=micros)
    device = DeviceForTests()
    found = []
    for where in (gpu_of(device), CPU):
        encoder = encoder_for(where, WriteCommand(parquet=options), table.schema)
        data = b"".join(encoder.write(table) + encoder.write(table) + encoder.close())
        assert read(data).num_rows == 80_000
        columns = metadata(data).row_group(1)
        every = {columns.column(index).path_in_schema: columns.column(index).encodings for index in range(4)}
        found.append({path: [name for name in names if name.startswith("DELTA")] for path, names in every.items()})
    on_device, on_cpu = found
    is_compact = encodings == Encodings.ENCODINGS_COMPACT
    assert any(on_cpu.values()) == is_compact
    # The library chooses encodings of columns with children.
    assert on_device == {**on_cpu, "p.n": []}
    [plan] = device.plans
    assert isinstance(plan, ParquetPlan)
    assert sorted(plan.encodings) == (["at", "n", "s"] if is_compact else [])


def test_who_asks_for_the_cpu_gets_it_without_a_question_to_any_driver() -> None:
    found = find_engine("cpu", memory_bytes=0)
    assert isinstance(found, Reason)
    assert (found.kind, encoder_for(found).reason) == (ReasonKind.ASKED, found)


def test_a_machine_without_a_gpu_or_its_library_says_which() -> None:
    found = find_engine("auto", memory_bytes=0)
    if not isinstance(found, Reason):
        pytest.skip("this machine has a GPU and its library")
    assert found.kind in (ReasonKind.NOT_INSTALLED, ReasonKind.NO_DEVICE)
