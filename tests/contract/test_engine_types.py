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
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

import pyarrow as pa

from updraft import function
from updraft.functions import Arrow, Batching

Price = Annotated[Decimal | None, pa.decimal128(10, 2)]


@function
def twice(price: Price) -> Price:
    return None if price is None else price * 2


@function
def next_day(at: datetime | None) -> datetime | None:
    return None if at is None else at + timedelta(days=1)


@function
def thrice(price: str | None) -> str | None:
    return None if price is None else str(Decimal(price) * 3)


@function
def city(document: str | None) -> str | None:
    return None if document is None else json.loads(document)["city"]


@function.table
def keys(document: str | None) -> Iterator[str]:
    yield from json.loads(document or "{}")


@function
def column(document: Arrow[str | None]) -> Arrow[str | None]:
    assert pa.types.is_string(document.type)
    return document


@function(batching=Batching())
def model(document: Arrow[str | None]) -> Arrow[str | None]:
    return document
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


NUMERIC, JSONB = "arrowudf.decimal", "arrowudf.json"
DOCUMENTS = ['{"city": "Brno"}', None]


@pytest.mark.parametrize(
    ("name", "extension", "sent", "answer"),
    [
        ("thrice", NUMERIC, ["1.10", None], ["3.30", None]),
        ("city", JSONB, DOCUMENTS, ["Brno", None]),
        ("column", JSONB, DOCUMENTS, DOCUMENTS),
        ("model", NUMERIC, ["1.10", None], ["1.10", None]),
    ],
)
def test_numeric_and_jsonb_of_risingwave_arrive_as_text(
    pool: LocalPool, name: str, extension: str, sent: list[str | None], answer: list[str | None]
) -> None:
    with risingwave(pool.tcp_address) as engine:
        engine.create_function(name, [pa.string()], pa.string())
        assert engine.call(name, [pa.array(sent)], extensions=[extension]).to_pylist() == answer


def test_a_table_function_takes_jsonb_of_risingwave(pool: LocalPool) -> None:
    with risingwave(pool.tcp_address) as engine:
        found = engine.call_table("keys", [pa.array(DOCUMENTS)], extensions=[JSONB])
    assert found == [(0, "city")]


def test_a_function_of_any_columns_sees_what_a_type_of_risingwave_is_called(pool: LocalPool) -> None:
    with risingwave(pool.tcp_address) as engine:
        (batch,) = engine.exchanged(engine.chunk("echo", [pa.array(DOCUMENTS)], extensions=[JSONB]))
    assert batch.column(0).to_pylist() == DOCUMENTS
    assert batch.schema.field(0).metadata == {b"ARROW:extension:name": JSONB.encode()}


def test_a_decimal_with_other_digits_is_refused(pool: LocalPool) -> None:
    with databend(pool.tcp_address) as engine, pytest.raises(grpc.RpcError) as refused:
        engine.call("twice", [PRICES.cast(pa.decimal128(12, 4))], [pa.field("", pa.decimal128(12, 4))], PRICE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
