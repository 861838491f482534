# SPDX-License-Identifier: Apache-2.0
import decimal
from typing import Any

import pyarrow as pa
import pytest
from spark_like import UTC, spark_table

from updraft_writer.encoders.gpu_columns import device_columns, device_table
from updraft_writer.reason import NotOnGpuError

NESTED = pa.list_(pa.map_(pa.string(), pa.struct({"d": pa.decimal128(9, 2), "b": pa.binary()})))
NESTED_ROWS: list[Any] = [
    [[("k", {"d": decimal.Decimal("1.23"), "b": b"\xff"}), ("l", None)], None, []],
    None,
    [[("m", {"d": None, "b": None})]],
    [],
]


def on_device(table: pa.Table) -> pa.Table:
    given = device_table(table, device_columns(table.schema))
    given.validate(full=False)
    return given


def as_dicts(value: Any) -> Any:
    """Convert Arrow's map pairs to dictionaries of key and value."""
    if isinstance(value, list):
        return [{"key": v[0], "value": as_dicts(v[1])} if isinstance(v, tuple) else as_dicts(v) for v in value]
    if isinstance(value, dict):
        return {name: as_dicts(child) for name, child in value.items()}
    return value


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (pa.int8(), pa.int8()),
        (pa.string(), pa.string()),
        (pa.date32(), pa.date32()),
        (UTC, UTC),
        (pa.binary(), pa.string()),
        (pa.large_binary(), pa.large_string()),
        (pa.decimal128(9, 2), pa.decimal128(9, 2)),
        (pa.large_list(pa.int8()), pa.large_list(pa.int8())),
    ],
)
def test_a_type_becomes_one_that_the_device_has(given: pa.DataType, taken: pa.DataType) -> None:
    [column] = device_columns(pa.schema({"c": given}))
    assert column.data_type == taken
    assert column.is_binary == (given in (pa.binary(), pa.large_binary()))
    assert column.precision == (given.precision if pa.types.is_decimal(given) else None)


@pytest.mark.parametrize(("precision", "bits"), [(1, 32), (9, 32), (10, 64), (18, 64), (19, None), (38, None)])
def test_the_device_narrows_decimals_at_any_depth_and_nothing_copies_them_before(
    precision: int, bits: int | None
) -> None:
    values = pa.array([decimal.Decimal(1), None, decimal.Decimal(-1)], pa.decimal128(precision, 0))
    structs = pa.StructArray.from_arrays([values], names=["d"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), structs)
    for column in (values, structs, lists):
        table = pa.table({"c": column})
        [described] = device_columns(table.schema)
        [stored] = on_device(table)["c"].chunks
        while described.children:
            assert described.narrow_bits is None
            stored = stored.values if pa.types.is_list(stored.type) else stored.field(0)
            [described] = described.children
        assert (described.narrow_bits, stored.type) == (bits, values.type)
        assert stored.buffers()[1].address == values.buffers()[1].address


def test_every_value_that_spark_has_is_given_to_the_device_as_it_was() -> None:
    table = spark_table().drop_columns(["bytes", "map"])
    assert on_device(table).to_pylist() == table.to_pylist()


@pytest.mark.parametrize(("offset", "length"), [(0, 4), (1, 3), (2, 1), (4, 0)])
def test_nested_columns_and_slices_of_them_keep_their_values(offset: int, length: int) -> None:
    table = pa.table({"n": pa.array(NESTED_ROWS, NESTED)})
    given = on_device(table.slice(offset, length))
    values = given["n"].combine_chunks()
    lists = values.values if length else values
    assert pa.types.is_list(lists.type)
    bytes_again = given.cast(pa.schema({"n": as_lists_of_entries()}))
    assert bytes_again.to_pylist() == [{"n": as_dicts(row)} for row in NESTED_ROWS[offset : offset + length]]


def as_lists_of_entries() -> pa.DataType:
    value = pa.struct({"d": pa.decimal128(9, 2), "b": pa.binary()})
    entry = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", value)])
    return pa.list_(pa.list_(pa.field("key_value", entry, nullable=False)))


def test_binary_values_and_maps_are_not_copied() -> None:
    array = pa.array([b"\0\xff", None, b"abc"])
    entries = pa.array([[("k", 1)], None, [("l", 2)]], pa.map_(pa.string(), pa.int64()))
    given = on_device(pa.table({"b": array, "m": entries}))
    assert given["b"].chunk(0).buffers()[2].address == array.buffers()[2].address
    assert given["m"].chunk(0).buffers()[1].address == entries.buffers()[1].address


def test_a_null_list_that_hides_values_is_emptied_because_a_device_would_count_them() -> None:
    hiding = pa.ListArray.from_arrays(
        pa.array([0, 2, 4], pa.int32()), pa.array([1, 2, 3, 4]), mask=pa.array([True, False])
    )
    given = on_device(pa.table({"l": hiding}))["l"].chunk(0)
    assert given.to_pylist() == [None, [3, 4]]
    assert given.offsets.to_pylist() == [0, 0, 2]


def test_a_map_s_keys_are_never_null_and_its_entries_have_the_names_of_parquet() -> None:
    [column] = device_columns(pa.schema({"m": pa.map_(pa.string(), pa.int64())}))
    [entries] = column.children
    assert (column.is_map, entries.nullable, [child.name for child in entries.children]) == (
        True,
        False,
        ["key", "value"],
    )
    assert [child.nullable for child in entries.children] == [False, True]


def test_only_points_in_time_become_int96() -> None:
    columns = device_columns(pa.schema({"t": UTC, "n": pa.int64(), "s": pa.struct({"t": UTC})}), int96=True)
    assert [columns[0].is_int96, columns[1].is_int96, columns[2].children[0].is_int96] == [True, False, True]


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (pa.field("a", pa.time64("us")), "'a' is time64"),
        (pa.field("a", pa.duration("us")), "'a' is duration"),
        (pa.field("a", pa.null()), "'a' is null"),
        (pa.field("a", pa.timestamp("ns", "UTC")), "'a' is timestamp"),
        (pa.field("a", pa.decimal256(50, 2)), "'a' is decimal256"),
        (pa.field("a", pa.list_(pa.field("element", pa.uint8()))), "'a.element' is uint8"),
        (pa.field("a", pa.map_(pa.string(), pa.time64("us"))), "'a.value' is time64"),
        (pa.field("a", pa.struct([])), "a struct without fields"),
        (
            pa.field("a", pa.struct([pa.field("b", pa.int8(), nullable=False)])),
            "the nullable column 'a' has the non-nullable field 'b'",
        ),
        (pa.field("a", pa.int8(), metadata={"PARQUET:field_id": "1"}), "'a' has a field id"),
        (
            pa.field("a", pa.struct([pa.field("b", pa.int8(), metadata={"PARQUET:field_id": "1"})])),
            "'a.b' has a field id",
        ),
    ],
)
def test_what_the_device_does_not_have_is_refused_by_its_name(field: pa.Field, says: str) -> None:
    with pytest.raises(NotOnGpuError, match=says):
        device_columns(pa.schema([field]))


def test_a_file_without_columns_is_refused() -> None:
    with pytest.raises(NotOnGpuError, match="without columns"):
        device_columns(pa.schema([]))
