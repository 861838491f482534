# SPDX-License-Identifier: Apache-2.0
"""RisingWave and Databend, as in `tests/support/engines.py`, and Databend's own Python client call one pool."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from unittest import mock

import grpc
import pyarrow as pa
import pytest
from databend_udf.client import UDFClient

from tests.support.engines import Databend, EngineError, RisingWave, databend, risingwave
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from tests.support.waiting import until

TEXT, NUMBER, REAL = (pa.field("", kind) for kind in (pa.string(), pa.int64(), pa.float64()))
NAMES = pa.array(["ada lovelace", None, "Grace Brewster Hopper"])
INITIALS = ["AL", None, "GBH"]
WORDS = pa.array([460, None, 23])
MINUTES = [2.0, None, 0.1]
TEXTS = pa.array(["a rose is a rose", None, "so it goes"])
COUNTS = [
    *((0, "a", 2), (0, "rose", 2), (0, "is", 1)),
    *((2, "so", 1), (2, "it", 1), (2, "goes", 1)),
]


@pytest.fixture(scope="module")
def words() -> Iterator[LocalPool]:
    """Start a pool with the functions of docs/examples/flight."""
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(REPOSITORY / "docs/examples/flight")),
        LocalPool(session_functions="off", arguments=("--functions", "words")) as pool,
    ):
        yield pool


@pytest.fixture
def rising_wave(words: LocalPool) -> Iterator[RisingWave]:
    with risingwave(words.tcp_address) as engine:
        yield engine


@pytest.fixture
def data_bend(words: LocalPool) -> Iterator[Databend]:
    with databend(words.tcp_address) as engine:
        yield engine


class TestRisingWave:
    def test_it_hears_the_second_version_of_its_protocol(self, rising_wave: RisingWave) -> None:
        assert rising_wave.protocol_version == 2

    def test_create_function_finds_the_types_that_it_declares(self, rising_wave: RisingWave) -> None:
        rising_wave.create_function("initials", [pa.string()], pa.string())
        rising_wave.create_function("initials@1", [pa.string()], pa.string())
        rising_wave.create_function("reading_minutes", [pa.int64()], pa.float64())
        columns = pa.struct([("word", pa.string()), ("count", pa.int64())])
        rising_wave.create_table_function("word_counts", [pa.string()], columns)

    @pytest.mark.parametrize("name", ["nothing", "initials@2"])
    def test_create_function_of_what_is_not_there_fails(self, rising_wave: RisingWave, name: str) -> None:
        with pytest.raises(grpc.RpcError) as refused:
            rising_wave.create_function(name, [pa.string()], pa.string())
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND

    def test_create_function_with_other_types_fails(self, rising_wave: RisingWave) -> None:
        with pytest.raises(EngineError, match="argument type mismatch"):
            rising_wave.create_function("initials", [pa.int64()], pa.string())
        with pytest.raises(EngineError, match="return type mismatch"):
            rising_wave.create_function("initials", [pa.string()], pa.int64())

    def test_a_chunk_is_answered(self, rising_wave: RisingWave) -> None:
        assert rising_wave.call("initials", [NAMES]).to_pylist() == INITIALS
        assert rising_wave.call("reading_minutes", [WORDS]).to_pylist() == MINUTES

    def test_results_of_a_table_function_name_their_rows(self, rising_wave: RisingWave) -> None:
        found = rising_wave.call_table("word_counts", [TEXTS])
        assert [(row, value["word"], value["count"]) for row, value in found] == COUNTS

    def test_an_old_version_takes_large_results_of_a_table_function(self, words: LocalPool) -> None:
        text = " ".join(f"{number:01000}" for number in range(10_000))
        with risingwave(words.tcp_address, is_old=True) as engine:
            found = engine.call_table("word_counts", [pa.array([text])])
        assert [value["word"] for _, value in found] == text.split()

    def test_an_error_of_the_function_has_its_class_and_message(self, rising_wave: RisingWave) -> None:
        with pytest.raises(grpc.RpcError) as failed:
            rising_wave.call("word_at", [pa.array(["so it goes"]), pa.array([3])])
        assert failed.value.code() is grpc.StatusCode.UNKNOWN
        assert "IndexError: list index out of range" in str(failed.value.details())

    def test_a_null_that_the_function_does_not_take_is_refused(self, rising_wave: RisingWave) -> None:
        with pytest.raises(grpc.RpcError) as refused:
            rising_wave.call("word_at", [pa.array(["so it goes"]), pa.array([None], pa.int64())])
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "'number'" in str(refused.value.details())

    def test_a_wrong_type_is_refused_and_not_converted(self, rising_wave: RisingWave) -> None:
        with pytest.raises(grpc.RpcError) as refused:
            rising_wave.call("reading_minutes", [pa.array([1.5])])
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "double" in str(refused.value.details())


class TestDatabend:
    def test_create_function_finds_the_types_that_it_declares(self, data_bend: Databend) -> None:
        data_bend.create_function("initials", [TEXT], TEXT)
        data_bend.create_function("reading_minutes", [NUMBER], REAL)

    def test_what_may_be_null_is_part_of_its_types(self, data_bend: Databend) -> None:
        with pytest.raises(EngineError, match="arg types mismatch"):
            data_bend.create_function("initials", [pa.field("", pa.string(), nullable=False)], TEXT)

    def test_a_block_is_answered(self, data_bend: Databend) -> None:
        assert data_bend.call("initials", [NAMES], [TEXT], TEXT).to_pylist() == INITIALS
        assert data_bend.call("reading_minutes", [WORDS], [NUMBER], REAL).to_pylist() == MINUTES

    def test_a_block_that_it_sends_in_several_batches_is_answered(self, data_bend: Databend) -> None:
        answer = data_bend.call("reading_minutes", [pa.array(range(200_000))], [NUMBER], REAL)
        assert answer.to_pylist() == [number / 230 for number in range(200_000)]

    def test_a_table_function_gives_the_columns_of_one_row(self, data_bend: Databend) -> None:
        rows = data_bend.call_table("word_counts", [pa.array(["a rose is a rose"])], [TEXT], [TEXT, NUMBER])
        assert [(0, row["word"], row["count"]) for row in rows] == COUNTS[:3]

    def test_its_health_and_echo_functions_are_there(self, data_bend: Databend) -> None:
        echoed = data_bend.call("builtin_echo", [pa.array(["hello"])], [TEXT.with_nullable(False)], TEXT)
        assert echoed.to_pylist() == ["hello"]
        healthy = data_bend.call("builtin_healthy", [], [], pa.field("", pa.int32()))
        assert healthy.to_pylist() == [1]

    def test_its_query_is_in_the_log(self, data_bend: Databend, words: LocalPool) -> None:
        named = '"query": "8a1b5f30-0001-4d5c-9c8e-000000000001"'
        before = words.log_file.read_text().count(named)
        data_bend.call("initials", [NAMES], [TEXT], TEXT)
        until("its query is in the log", lambda: words.log_file.read_text().count(named) > before)


class TestDatabendsPythonClient:
    @pytest.fixture
    def client(self, words: LocalPool) -> Iterator[UDFClient]:
        host, port = words.tcp_address.rsplit(":", 1)
        client = UDFClient(host, int(port))
        yield client
        client.client.close()

    def test_it_calls_by_position_by_name_and_in_batches(self, client: UDFClient) -> None:
        assert client.call_function("initials", "ada lovelace") == ["AL"]
        assert client.call_function("initials", NAMES.to_pylist()) == INITIALS
        assert client.call_function_batch("reading_minutes", words=WORDS.to_pylist()) == MINUTES

    def test_it_finds_a_pool_healthy_and_hears_its_echo(self, client: UDFClient) -> None:
        assert client.health_check()
        assert client.echo("hello") == "hello"
        assert client.list_functions() == ["builtin_echo", "builtin_healthy"]

    def test_with_the_engines_headers_a_table_function_gives_columns(self, client: UDFClient) -> None:
        rows = client.call_function("word_counts", "so it goes", headers={"x-databend-tenant": "t"})
        assert [(2, row["word"], row["count"]) for row in rows] == COUNTS[3:]

    def test_an_error_says_what_the_function_raised(self, client: UDFClient) -> None:
        with pytest.raises(pa.ArrowException, match="IndexError"):
            client.call_function("word_at", "so it goes", 3)


def test_the_example_prints_what_the_guide_shows(words: LocalPool) -> None:
    (printed,) = re.findall(r"```text\n(.*?)```", (REPOSITORY / "docs/guides/flight-clients.md").read_text(), re.DOTALL)
    program = REPOSITORY / "docs/examples/flight/call_words.py"
    command = [sys.executable, str(program), f"grpc://{words.tcp_address}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == printed
