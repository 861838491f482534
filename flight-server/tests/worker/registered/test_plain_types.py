# SPDX-License-Identifier: Apache-2.0
"""Types that count as an argument's type although an engine uses another name, and types that never do."""

import datetime
import decimal

import pyarrow as pa
import pytest

from updraft_server.worker.registered.runner import as_declared, retyped

PRICE = pa.array([decimal.Decimal("1.10"), None], pa.decimal64(10, 2))
INSTANT = pa.array([datetime.datetime(2026, 1, 1, 12), None], pa.timestamp("us"))
UTC = pa.timestamp("us", "UTC")


def adapted(column: pa.Array, kind: pa.DataType, *, zoneless_is_utc: bool = False) -> pa.Array:
    batch = pa.record_batch([column, pa.array(["x", "y"])], ["arg1", "arg2"])
    declared = pa.schema([pa.field("a", kind), pa.field("b", pa.string())])
    answer = retyped(batch, as_declared(batch.schema, declared, zoneless_is_utc=zoneless_is_utc))
    assert (answer.schema.names, answer.column(1)) == (batch.schema.names, batch.column(1))
    return answer.column(0)


def test_a_decimal_may_be_of_another_width() -> None:
    assert adapted(PRICE, pa.decimal128(10, 2)) == PRICE.cast(pa.decimal128(10, 2))


@pytest.mark.parametrize("kind", [pa.decimal128(11, 2), pa.decimal128(10, 1), pa.int64(), pa.float64()])
def test_a_decimal_of_other_digits_stays_for_the_function_to_refuse(kind: pa.DataType) -> None:
    assert adapted(PRICE, kind) == PRICE


@pytest.mark.parametrize("zone", ["+00:00", "Etc/UTC", "UTC"])
def test_a_name_of_utc_is_as_good_as_another(zone: str) -> None:
    column = INSTANT.cast(pa.timestamp("us", zone))
    assert adapted(column, UTC) == INSTANT.cast(UTC)
    assert adapted(column, pa.timestamp("us", "+00:00")).type == pa.timestamp("us", "+00:00")


def test_an_instant_of_databend_has_no_zone_and_is_in_utc() -> None:
    assert adapted(INSTANT, UTC, zoneless_is_utc=True) == INSTANT.cast(UTC)
    assert adapted(INSTANT, UTC) == INSTANT


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (INSTANT.cast(pa.timestamp("us", "Europe/Prague")), UTC),
        (INSTANT.cast(pa.timestamp("ms", "UTC")), UTC),
        (INSTANT.cast(UTC), pa.timestamp("us")),
    ],
    ids=["zone", "unit", "none"],
)
def test_another_zone_or_unit_stays_for_the_function_to_refuse(column: pa.Array, kind: pa.DataType) -> None:
    assert adapted(column, kind, zoneless_is_utc=True) == column


def test_columns_that_are_missing_or_too_many_are_for_the_function_to_refuse() -> None:
    batch = pa.record_batch([PRICE, PRICE], ["a", "b"])
    one, three = (pa.schema([pa.field(str(n), pa.decimal128(10, 2)) for n in range(count)]) for count in (1, 3))
    assert as_declared(batch.schema, one, zoneless_is_utc=False).types == [pa.decimal128(10, 2), pa.decimal64(10, 2)]
    assert as_declared(batch.schema, three, zoneless_is_utc=False).types == [pa.decimal128(10, 2)] * 2
