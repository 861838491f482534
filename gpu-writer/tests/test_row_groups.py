# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft.errors import LimitError
from updraft_writer.quota import Quota, QuotaLimits
from updraft_writer.row_groups import (
    RowGroup,
    RowGroupBuilder,
    row_group_target_bytes,
    stripe_target_bytes,
    to_flush,
)

MANY = 1 << 30


def batch(rows: int, first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + rows), pa.int64())})


def lists(lengths: list[int]) -> pa.Array:
    """Return lists of booleans with these lengths."""
    offsets = pa.array([sum(lengths[:index]) for index in range(len(lengths) + 1)], pa.int32())
    bits = pa.py_buffer(bytes(sum(lengths) // 8 + 1))
    return pa.ListArray.from_arrays(offsets, pa.Array.from_buffers(pa.bool_(), sum(lengths), [None, bits]))


@pytest.fixture
def quota() -> Quota:
    return Quota(QuotaLimits(quota_bytes=MANY))


async def add(builder: RowGroupBuilder, quota: Quota, data: pa.RecordBatch, target_bytes: int = MANY) -> list[RowGroup]:
    reservation = await quota.acquire("t", data.nbytes)
    return builder.add(data, reservation, raw_bytes=data.nbytes, target_bytes=target_bytes)


async def test_batches_are_gathered_until_they_have_enough_bytes(quota: Quota) -> None:
    builder = RowGroupBuilder(max_rows=MANY)
    assert await add(builder, quota, batch(10), target_bytes=200) == []
    assert await add(builder, quota, batch(10), target_bytes=200) == []
    [full] = await add(builder, quota, batch(10), target_bytes=200)
    assert (full.rows, full.raw_bytes, full.reservation.held_bytes) == (30, 240, 240)
    assert builder.partial_bytes == 0
    assert builder.seal() == []


async def test_a_row_group_takes_over_all_of_the_next_one(quota: Quota) -> None:
    builder = RowGroupBuilder(max_rows=MANY)
    [first] = await add(builder, quota, batch(10), target_bytes=1)
    [second] = await add(builder, quota, batch(20, first=10), target_bytes=1)
    first.join(second)
    assert (first.rows, first.raw_bytes, first.reservation.held_bytes) == (30, 240, 240)
    assert (second.batches, second.reservation.held_bytes, quota.held_bytes, quota.reservations) == ([], 0, 240, 1)
    assert first.take_table(batch(0).schema)["n"].to_pylist() == list(range(30))


async def test_a_row_group_never_has_more_rows_than_allowed(quota: Quota) -> None:
    builder = RowGroupBuilder(max_rows=7)
    groups = [group for _ in range(3) for group in await add(builder, quota, batch(10))] + builder.seal()
    assert [group.rows for group in groups] == [7, 7, 7, 7, 2]


async def test_row_groups_are_counted_however_small_the_batches_are(
    quota: Quota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_writer.row_groups._MAX_CUT_ROW_GROUPS", 3)
    builder = RowGroupBuilder(max_rows=7)
    for _ in range(4):
        await add(builder, quota, batch(6))
    with pytest.raises(LimitError, match="more than the limit of 3 row groups"):
        await add(builder, quota, batch(6))


@pytest.mark.parametrize(
    "column",
    [
        lists([0] * 50 + [1000] + [0] * 50 + [900] * 3),
        pa.StructArray.from_arrays([lists([0] * 50 + [1000] + [0] * 50 + [900] * 3)], ["s"]),
        pa.ListArray.from_arrays(
            pa.array([0] * 51 + [2] * 51 + [4, 6, 8], pa.int32()), lists([500, 500, 450, 450, 450, 450, 450, 450])
        ),
        pa.ListArray.from_arrays(
            pa.array([0] * 51 + [10] * 51 + [19, 28, 37], pa.int32()),
            pa.FixedSizeListArray.from_arrays(lists([3700]).values, 100),
        ),
    ],
    ids=["lists", "in structs", "lists of lists", "of fixed size"],
)
async def test_long_lists_of_booleans_are_cut_where_they_are(quota: Quota, column: pa.Array) -> None:
    """The average row is misleading, because a few rows have all the values."""
    builder = RowGroupBuilder(max_rows=MANY)
    data = pa.record_batch({"b": column})
    reservation = await quota.acquire("t", data.nbytes)
    # Four bytes of cost for each byte of a row group allow 1,000 booleans.
    groups = builder.add(data, reservation, raw_bytes=data.nbytes, target_bytes=1500, encoding_bytes=6 * 3700)
    booleans = []
    for group in [*groups, *builder.seal()]:
        values = group.take_table(data.schema).column(0).combine_chunks()
        while not pa.types.is_boolean(values.type):
            values = values.field(0) if pa.types.is_struct(values.type) else values.flatten()
        booleans.append(len(values))
        group.reservation.release()
    assert sum(booleans) == 3700
    assert max(booleans) <= 1000


async def test_a_row_that_costs_too_much_is_refused_before_anything_is_taken_over(quota: Quota) -> None:
    builder = RowGroupBuilder(max_rows=MANY)
    data = pa.record_batch({"b": lists([10, 12_000_000, 10])})
    reservation = await quota.acquire("t", data.nbytes)
    with pytest.raises(LimitError, match=r"the booleans in the lists of a row take 72000000 bytes .* is 67108864"):
        builder.add(data, reservation, raw_bytes=data.nbytes, target_bytes=1 << 20, encoding_bytes=72_000_120)
    assert reservation.held_bytes == data.nbytes


async def test_a_batch_that_is_cut_holds_its_bytes_until_its_last_part_is_done(quota: Quota) -> None:
    builder = RowGroupBuilder(max_rows=7)
    [first] = await add(builder, quota, batch(10))
    first.reservation.release()
    assert quota.held_bytes == builder.partial_bytes == 80
    [last] = builder.seal()
    last.reservation.release()
    assert (quota.held_bytes, quota.reservations) == (0, 0)


@given(sizes=st.lists(st.integers(0, 30)), max_rows=st.integers(1, 40), target_bytes=st.integers(1, 400))
def test_no_row_is_lost_or_moved_and_every_byte_is_released(sizes: list[int], max_rows: int, target_bytes: int) -> None:
    async def play() -> None:
        quota, builder = Quota(QuotaLimits(quota_bytes=MANY)), RowGroupBuilder(max_rows=max_rows)
        groups: list[RowGroup] = []
        for index, rows in enumerate(sizes):
            groups += await add(builder, quota, batch(rows, sum(sizes[:index])), target_bytes)
        groups += builder.seal()
        assert quota.held_bytes == 8 * sum(sizes)
        assert all(group.rows <= max_rows for group in groups)
        values = [value for group in groups for value in group.take_table(batch(0).schema)["n"].to_pylist()]
        assert values == list(range(sum(sizes)))
        for group in groups:
            group.reservation.release()
        assert (quota.held_bytes, quota.reservations) == (0, 0)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("open_files", "target"),
    [(1, 250), (5, 50), (0, 250)],
)
def test_open_files_share_half_of_a_small_quota_for_their_row_groups(open_files: int, target: int) -> None:
    mib = 1 << 20
    assert row_group_target_bytes(800 * mib, quota_bytes=1000 * mib, open_files=open_files) == target * mib


def test_a_quota_with_room_gives_the_row_groups_that_were_wanted() -> None:
    assert row_group_target_bytes(100_000, quota_bytes=MANY, open_files=4) == 100_000


def test_stripes_of_all_files_stay_within_half_of_the_quota_and_the_last_has_an_equal_part() -> None:
    mib, max_files = 1 << 20, 10
    granted: list[int] = []
    for _ in range(max_files):
        granted.append(stripe_target_bytes(800 * mib, quota_bytes=1000 * mib, max_files=max_files, granted=granted))
    assert granted == sorted(granted, reverse=True)
    assert granted[0] == 137.5 * mib
    assert granted[-1] >= 25 * mib
    assert sum(granted) <= 500 * mib


def test_a_stripe_that_fits_is_as_large_as_was_wanted() -> None:
    assert stripe_target_bytes(100_000, quota_bytes=MANY, max_files=10, granted=[MANY // 10]) == 100_000


@dataclass
class File:
    name: str
    partial_bytes: int


FILES = [File("small", 10), File("large", 30), File("none", 0), File("middle", 20)]


@pytest.mark.parametrize(
    ("missing_bytes", "chosen"),
    [(0, []), (1, ["large"]), (31, ["large", "middle"]), (1000, ["large", "middle", "small"])],
)
def test_under_pressure_the_largest_partial_row_groups_go_first(missing_bytes: int, chosen: list[str]) -> None:
    assert [file.name for file in to_flush(FILES, missing_bytes=missing_bytes)] == chosen
