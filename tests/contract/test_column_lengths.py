# SPDX-License-Identifier: Apache-2.0
"""A batch whose columns do not have its length is the caller's error, and does not reach a function."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
import pytest

from tests.contract.written_functions import pool_of
from tests.support.flight import (
    PATH,
    FlightData,
    FlightDescriptor,
    echo_command,
    exchange,
    finishing,
    first_message,
    ipc_parts,
    numbered,
)
from tests.support.pool import LocalPool

FUNCTIONS = """
from collections.abc import Iterator

from updraft import function
from updraft.functions import Arrow, Batching


@function
def rows(x: int, y: int) -> int:
    raise RuntimeError("the code has run")


@function
def columns(x: Arrow[int], y: Arrow[int]) -> Arrow[int]:
    raise RuntimeError("the code has run")


@function.table
def table(x: int, y: int) -> Iterator[int]:
    raise RuntimeError("the code has run")


@function(batching=Batching())
def model(x: Arrow[int], y: Arrow[int]) -> Arrow[int]:
    raise RuntimeError("the code has run")
"""
ROWS = 77
BATCH = pa.record_batch({"x": [0] * ROWS, "y": [0] * ROWS})
(SCHEMA, _), (HEADER, BODY) = ipc_parts(BATCH.schema, [BATCH])
# Positions of row counts in the header: the batch's and each column's.
COUNTS = [at for at in range(len(HEADER)) if HEADER.startswith(struct.pack("<q", ROWS), at)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with pool_of(FUNCTIONS, tmp_path_factory.mktemp("functions")) as pool:
        yield pool


def plain(name: str, header: bytes) -> Sequence[Any]:
    return [
        FlightData(flight_descriptor=FlightDescriptor(type=PATH, path=[name]), data_header=SCHEMA),
        FlightData(data_header=header, data_body=BODY),
    ]


def numbered_by_updraft(name: str, header: bytes) -> Sequence[Any]:
    return [first_message(echo_command(name=name), SCHEMA), numbered(header, BODY, 1), finishing(1, ROWS)]


@pytest.mark.parametrize("requests", [plain, numbered_by_updraft])
@pytest.mark.parametrize("name", ["rows", "columns", "table", "model"])
@pytest.mark.parametrize("said", [ROWS - 1, ROWS + 1, 0, -1])
def test_it_is_refused_before_any_code_runs(pool: LocalPool, name: str, said: int, requests: Any) -> None:
    assert len(COUNTS) == 3
    for at in COUNTS:
        header = HEADER[:at] + struct.pack("<q", said) + HEADER[at + 8 :]
        reply = exchange(pool.tcp_address, requests(name, header))
        assert reply.code is grpc.StatusCode.INVALID_ARGUMENT, (at, reply.details)
        assert "batch 1 " in reply.details


@pytest.mark.parametrize("requests", [plain, numbered_by_updraft])
@pytest.mark.parametrize("name", ["rows", "columns", "table", "model"])
def test_as_it_was_the_code_runs(pool: LocalPool, name: str, requests: Any) -> None:
    reply = exchange(pool.tcp_address, requests(name, HEADER))
    assert (reply.code, "the code has run" in reply.details) == (grpc.StatusCode.UNKNOWN, True)
