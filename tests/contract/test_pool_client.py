# SPDX-License-Identifier: Apache-2.0
"""Calls of a real pool's registered functions by `updraft.client`, with the tables of several libraries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import updraft.client
from tests.support.called_pool import busy_workers, new_note
from tests.support.certificates import Authority
from tests.support.pool import LocalPool
from tests.support.waiting import until
from updraft.client import PoolClient
from updraft.errors import (
    DeadlineError,
    FunctionNotFoundError,
    PoolUnavailableError,
    UnauthenticatedError,
    UserError,
    WorkerError,
)


@pytest.fixture
def pool(functions_pool: LocalPool) -> LocalPool:
    return functions_pool


@pytest.fixture
def client(pool: LocalPool) -> Iterator[PoolClient]:
    with PoolClient(endpoint=pool.tcp_endpoint, timeout_seconds=120) as client:
        yield client


def test_a_dictionary_of_lists_gives_a_table(pool: LocalPool) -> None:
    answer = updraft.client.call("text.slug", {"title": ["Ada Lovelace", "B c"]}, endpoint=pool.unix_endpoint)
    assert answer.to_pydict() == {"result": ["ada-lovelace", "b-c"]}


def test_the_endpoint_is_found_in_the_environment(pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPDRAFT_CLIENT_ENDPOINT", pool.tcp_endpoint)
    assert updraft.client.call("text.slug", {"title": ["A b"]}).to_pydict() == {"result": ["a-b"]}


def test_pandas_keeps_its_index(client: PoolClient) -> None:
    people = pd.DataFrame({"title": ["A b", "C d"]}, index=[7, 3])
    pd.testing.assert_frame_equal(
        client.call("text.slug", people), pd.DataFrame({"result": ["a-b", "c-d"]}, index=[7, 3])
    )


def test_polars_gets_polars(client: PoolClient) -> None:
    answer = client.call("text.slug", pl.DataFrame({"title": ["A b"]}))
    assert answer.equals(pl.DataFrame({"result": ["a-b"]}))


def test_any_table_with_the_capsule_interface_is_taken(client: PoolClient) -> None:
    class Exported:
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            return pa.table({"title": ["A b"]}).__arrow_c_stream__(requested_schema)

    assert client.call("text.slug", Exported()).to_pydict() == {"result": ["a-b"]}  # type: ignore[attr-defined]


def test_columns_are_matched_by_name_and_cast_if_nothing_is_lost(client: PoolClient) -> None:
    answer = client.call("discount", pa.table({"percent": pa.array([50], pa.int8()), "price": pa.array([3], "int32")}))
    assert answer.to_pydict() == {"result": [1.5]}


def test_a_later_table_is_cast_only_if_nothing_is_lost(client: PoolClient) -> None:
    def streamed(*tables: pa.Table) -> list[object]:
        return [row for frame in client.stream("echo", list(tables)) for row in frame.column(0).to_pylist()]

    numbers = pa.table({"x": pa.array([1, 2])})
    assert streamed(numbers, pa.table({"x": pa.array([3], pa.int8())})) == [1, 2, 3]
    with pytest.raises(TypeError, match="column 'x' of the first table is int64, not string: cast it"):
        streamed(numbers, pa.table({"x": ["3"]}))
    with pytest.raises(TypeError, match="column 'x' of the first table is bool, not int64: cast it"):
        streamed(pa.table({"x": [True]}), numbers)
    with pytest.raises(ValueError, match="a later table has the columns y, and the first had x"):
        streamed(numbers, pa.table({"y": [1]}))


def test_rows_are_kept_if_no_column_is_an_argument(client: PoolClient) -> None:
    rows = pa.table({"unused": [1, 2, 3]}).select([])
    assert client.call("constant", rows).to_pydict() == {"result": ["ab", "ab", "ab"]}


def test_a_reader_is_streamed(client: PoolClient) -> None:
    read = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        while True:
            read += 1
            yield pa.record_batch({"x": pa.array(range(60_000))})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())
    stream = client.stream("echo", reader)
    assert next(stream).num_rows == 60_000
    stream.close()  # type: ignore[attr-defined]
    assert read < 100


@pytest.mark.parametrize(
    ("name", "columns", "results"),
    [
        ("parity@1", {"x": [1]}, ["is1!"]),
        ("parity@1", {"x": [1, 2], "end": ["?", "."]}, ["is1?", "is0."]),
        ("parity@2", {"x": [1]}, ["1"]),
        ("parity", {"x": [1]}, ["1"]),
        ("parity@1", {"x": []}, []),
    ],
)
def test_versions_and_defaults(
    client: PoolClient, name: str, columns: dict[str, list[object]], results: list[str]
) -> None:
    assert client.call(name, columns).column("result").to_pylist() == results


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ({"titel": ["x"]}, ValueError, "text.slug has no argument 'titel': text.slug takes title"),
        ({}, ValueError, "column 'title' is missing"),
        ({"title": [1]}, TypeError, "argument 'title' of text.slug is string, not int64: cast it"),
        ({"title": "x"}, TypeError, "column 'title' is a str: give a sequence"),
        ([1], TypeError, "list is not a table"),
    ],
)
def test_a_wrong_argument_is_named_before_the_call(
    client: PoolClient, columns: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        client.call("text.slug", columns)


def test_a_value_that_does_not_fit_is_refused(client: PoolClient) -> None:
    with pytest.raises(ValueError, match=r"argument 'x' of parity is int64.*1\.5"):
        client.call("parity", {"x": [1.5]})


def test_results_of_a_table_function_name_their_rows(client: PoolClient) -> None:
    answer = client.call("words", {"text": ["a bb", "", "c"]})
    assert answer.to_pylist() == [
        {"row": 0, "word": "a", "length": 1},
        {"row": 0, "word": "bb", "length": 2},
        {"row": 2, "word": "c", "length": 1},
    ]


def test_rows_of_a_table_function_are_counted_over_many_batches(client: PoolClient) -> None:
    rows = 200_000
    answer = client.call("words", {"text": pa.array(["a b" if row % 3 else "" for row in range(rows)])})
    assert answer.column("row").to_pylist() == [row for row in range(rows) if row % 3 for _ in "ab"]


def test_an_aggregate_groups_by_columns(client: PoolClient) -> None:
    frame = pl.DataFrame({"city": ["Rome", "Oslo", "Rome"], "value": [1.0, 5.0, 2.0]})
    answer = client.call("mean", frame, group_by=["city"]).sort("city")
    assert answer.to_dicts() == [{"city": "Oslo", "result": 5.0}, {"city": "Rome", "result": 1.5}]
    assert client.call("mean", {"value": [1.0, 2.0]}).to_pydict() == {"result": [1.5]}
    with pytest.raises(ValueError, match=r"text\.slug is not an aggregate"):
        client.call("text.slug", {"title": ["a"], "city": ["b"]}, group_by=["city"])


def test_many_batches_and_a_row_larger_than_a_message_come_back_unchanged(client: PoolClient) -> None:
    many = pa.table({"x": pa.array(range(2_000_000)), "y": pa.array(range(2_000_000))})
    assert client.call("echo", many).equals(many)
    large = pa.table({"x": ["y" * (66 << 20)]})
    assert client.call("echo", large).equals(large)


def test_an_error_carries_the_functions_own_traceback(client: PoolClient) -> None:
    with pytest.raises(UserError, match="ZeroDivisionError: division by zero") as raised:
        client.call("inverse", {"x": [1, 0]})
    assert raised.value.exception_class == "ZeroDivisionError"
    assert "return 1 / x" in raised.value.traceback
    assert "return 1 / x" in "".join(raised.value.__notes__)


def test_an_unknown_function_is_answered_with_those_that_exist(client: PoolClient) -> None:
    with pytest.raises(FunctionNotFoundError, match=r"no function 'nope'.*text\.slug 1"):
        client.call("nope", {"x": [1]})


def test_a_stream_yields_results_while_its_input_still_comes(client: PoolClient) -> None:
    seen: list[str] = []

    def titles() -> Iterator[pl.DataFrame]:
        for number in range(3):
            yield pl.DataFrame({"title": [f"T {number}"]})
            until("the result has come", lambda number=number: len(seen) > number)  # type: ignore[misc]

    for frame in client.stream("text.slug", titles()):
        seen += frame["result"].to_list()
    assert seen == ["t-0", "t-1", "t-2"]


def test_the_exception_of_an_input_reaches_the_caller(client: PoolClient) -> None:
    def titles() -> Iterator[dict[str, list[str]]]:
        yield {"title": ["a"]}
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(client.stream("text.slug", titles()))


def test_an_endless_input_is_read_only_as_far_as_results_are(client: PoolClient) -> None:
    read = 0

    def numbers() -> Iterator[pa.Table]:
        nonlocal read
        while True:
            read += 1
            yield pa.table({"x": pa.array(range(60_000))})

    stream = client.stream("echo", numbers())
    assert next(stream).num_rows == 60_000
    time.sleep(1)
    stream.close()  # type: ignore[attr-defined]
    assert read < 100


def test_a_deadline_frees_the_worker(pool: LocalPool) -> None:
    note = new_note("deadline")
    with PoolClient(endpoint=pool.tcp_endpoint, timeout_seconds=2) as hasty, pytest.raises(DeadlineError):
        hasty.call("sleepy", {"note": [str(note)]})
    assert note.exists()
    until("no worker is busy", lambda: busy_workers(pool) == 0)


def test_a_batch_whose_worker_was_lost_is_sent_again(client: PoolClient) -> None:
    note = new_note("once")
    rows = 200_000
    columns = {"x": pa.array(range(rows)), "note": pa.array([str(note)] * rows)}
    assert client.call("dies_once", columns).column("result").to_pylist() == list(range(rows))
    assert note.exists()


def test_a_batch_that_kills_two_workers_is_not_tried_again(client: PoolClient) -> None:
    with pytest.raises(WorkerError, match=r"batch 1 killed two workers: .*SIGABRT"):
        client.call("dies", {"x": [1]})


def test_a_function_that_is_not_deterministic_is_called_once(client: PoolClient) -> None:
    note = new_note("counts")
    with pytest.raises(WorkerError, match="SIGABRT"):
        client.call("dies_and_counts", {"note": [str(note)]})
    assert note.read_text() == "called\n"


def test_a_pool_that_is_gone_is_named() -> None:
    with (
        PoolClient(endpoint="grpc://127.0.0.1:1", connect_timeout_seconds=0.3) as client,
        pytest.raises(
            PoolUnavailableError, match=r"pool at grpc://127\.0\.0\.1:1 cannot be reached within 0\.3 seconds"
        ),
    ):
        client.call("echo", {"x": [1]})


def test_tokens_and_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    own, theirs = authority.identity("localhost"), authority.identity("client")
    token_file = tmp_path / "token"
    token_file.write_text("letmein\n")
    arguments = [
        *("--tls-certificate-file", str(own.certificate), "--tls-key-file", str(own.key)),
        *("--tls-client-ca-file", str(authority.certificate), "--token-file", str(token_file)),
    ]
    with LocalPool(workers=1, session_functions="off", arguments=arguments) as careful:
        endpoint = f"grpc+tls://localhost:{careful.tcp_address.rpartition(':')[2]}"
        files: dict[str, Any] = {
            "endpoint": endpoint,
            "ca_file": authority.certificate,
            "certificate_file": theirs.certificate,
            "key_file": theirs.key,
        }
        columns = {"x": [1]}
        assert updraft.client.call("echo", columns, token_file=token_file, **files).to_pydict() == columns
        assert updraft.client.call("echo", columns, token="letmein", **files).to_pydict() == columns
        with pytest.raises(UnauthenticatedError, match="token"):
            updraft.client.call("echo", columns, token="guess", **files)
