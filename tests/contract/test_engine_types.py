# SPDX-License-Identifier: Apache-2.0
"""Decimals and instants reach a function from both engines, each of which has its own Arrow types for them."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator

import grpc
import pyarrow as pa
import pytest

from tests.contract.written_functions import pool_of
from tests.support.engines import databend, risingwave
from tests.support.pool import LocalPool

FUNCTIONS = """
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

import pyarrow as pa

from updraft import function

Price = Annotated[Decimal | None, pa.decimal128(10, 2)]


@function
def twice(price: Price) -> Price:
    return None if price is None else price * 2


@function
def next_day(at: datetime | None) -> datetime | None:
    return None if at is None else at + timedelta(days=1)
"""
PRICES = pa.array([decimal.Decimal("1.10"), None], pa.decimal128(10, 2))
TWICE = [decimal.Decimal("2.20"), None]
FIRST = datetime.datetime(2026, 2, 28, 12, tzinfo=datetime.UTC)
INSTANTS = pa.array([FIRST, None], pa.timestamp("us", "UTC"))
NEXT = [datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC), None]
PRICE, INSTANT = pa.field("", PRICES.type), pa.field("", INSTANTS.type)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with pool_of(FUNCTIONS, tmp_path_factory.mktemp("functions")) as pool:
        yield pool


def test_databend_sends_decimals_in_fewer_bytes_and_instants_without_a_zone(pool: LocalPool) -> None:
    with databend(pool.tcp_address) as engine:
        engine.create_function("twice", [PRICE], PRICE)
        assert engine.call("twice", [PRICES], [PRICE], PRICE).to_pylist() == TWICE
        engine.create_function("next_day", [INSTANT], INSTANT)
        assert engine.call("next_day", [INSTANTS], [INSTANT], INSTANT).to_pylist() == NEXT


def test_risingwave_names_utc_otherwise(pool: LocalPool) -> None:
    with risingwave(pool.tcp_address) as engine:
        sent = INSTANTS.cast(pa.timestamp("us", "+00:00"))
        assert engine.call("next_day", [sent]).to_pylist() == NEXT


def test_a_time_of_risingwave_without_a_zone_is_no_instant(pool: LocalPool) -> None:
    with risingwave(pool.tcp_address) as engine, pytest.raises(grpc.RpcError) as refused:
        engine.call("next_day", [INSTANTS.cast(pa.timestamp("us"))])
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "cast it before the call" in str(refused.value.details())


def test_a_decimal_with_other_digits_is_refused(pool: LocalPool) -> None:
    with databend(pool.tcp_address) as engine, pytest.raises(grpc.RpcError) as refused:
        engine.call("twice", [PRICES.cast(pa.decimal128(12, 4))], [pa.field("", pa.decimal128(12, 4))], PRICE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
