# SPDX-License-Identifier: Apache-2.0
"""Clients ask whether the writer would open a file before they remove the file that it replaces."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from running_writer import BATCH, SCHEMA, RunningWriter, command, running_writer, wait_for

from updraft.service.lifecycle import Phase
from updraft.v1.write_pb2 import Delivery

CHECK = "updraft.check_write"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWriter]:
    with running_writer(tmp_path_factory.mktemp("shared")) as writer:
        yield writer


def check(writer: RunningWriter, body: bytes, *, token: str = "") -> list[bytes]:
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    with flight.connect(f"grpc://{writer.address}") as client:
        options = flight.FlightCallOptions(headers=headers, timeout=30)
        return [result.body.to_pybytes() for result in client.do_action(flight.Action(CHECK, body), options)]


def check_file(writer: RunningWriter, path: Path | str, **changes: Any) -> list[bytes]:
    return check(writer, command(path, **changes).SerializeToString())


def test_a_file_that_would_be_opened_is_answered_with_nothing_and_not_created(shared: RunningWriter) -> None:
    assert check_file(shared, shared.root / "deep" / "down" / "f.parquet") == [b""]
    assert list(shared.root.iterdir()) == []


def test_a_command_beyond_the_limit_is_refused_before_it_is_parsed(shared: RunningWriter) -> None:
    with pytest.raises(pa.ArrowInvalid, match="a request has 52428826 bytes, the limit is 4198400"):
        check(shared, b"\xff" * (50 << 20))
    with pytest.raises(pa.ArrowInvalid, match="the command has 4194305 bytes, the limit of this writer is 4194304"):
        check(shared, b"\xff" * ((4 << 20) + 1))


def test_a_path_outside_the_roots_is_refused(shared: RunningWriter, tmp_path: Path) -> None:
    with pytest.raises(flight.FlightUnauthorizedError, match="lies outside the roots of this writer"):
        check_file(shared, tmp_path / "f.parquet")


def test_a_returned_file_may_have_any_path(shared: RunningWriter, tmp_path: Path) -> None:
    assert check_file(shared, tmp_path / "f.parquet", delivery=Delivery.DELIVERY_RETURN) == [b""]


def test_another_version_is_refused_and_both_are_named(shared: RunningWriter) -> None:
    with pytest.raises(pa.ArrowInvalid, match="version 9 of the protocol, this writer version 1"):
        check_file(shared, shared.root / "f", protocol_version=9)


def test_what_is_no_command_is_refused(shared: RunningWriter) -> None:
    with pytest.raises(pa.ArrowInvalid, match="not a WriteCommand"):
        check(shared, b"\xff")


def test_a_storage_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with (
        running_writer(tmp_path, storage="nonesuch://bucket/data") as writer,
        pytest.raises(flight.FlightError, match="cannot reach nonesuch://bucket/data/f"),
    ):
        check_file(writer, "nonesuch://bucket/data/f")


def test_a_token_is_needed_where_there_are_tokens(tmp_path: Path) -> None:
    tokens, root = tmp_path / "tokens", tmp_path / "root"
    tokens.write_text("secret\n")
    root.mkdir()
    encoded = command(root / "f").SerializeToString()
    with running_writer(root, token_file=tokens) as writer:
        with pytest.raises(flight.FlightUnauthenticatedError):
            check(writer, encoded, token="wrong")
        assert check(writer, encoded, token="secret") == [b""]


def test_a_writer_that_drains_says_so(tmp_path: Path) -> None:
    with running_writer(tmp_path) as writer, writer.client() as client:
        file = client.create(str(tmp_path / "open"), SCHEMA)
        file.write(BATCH)
        wait_for(lambda: len(writer.writer.files) == 1, "the opening of the file")
        writer.drain()
        wait_for(lambda: writer.writer.lifecycle.phase is Phase.DRAINING, "the drain")
        with pytest.raises(flight.FlightUnavailableError, match="draining"):
            check_file(writer, tmp_path / "f")
        file.finish()


def test_a_writer_with_as_many_files_as_it_may_have_says_so(tmp_path: Path) -> None:
    with running_writer(tmp_path, max_open_files=1) as writer, writer.client() as client:
        file = client.create(str(tmp_path / "open"), SCHEMA)
        wait_for(lambda: len(writer.writer.files) == 1, "the opening of the file")
        with pytest.raises(pa.ArrowInvalid, match="1 files are open, the maximum of this writer"):
            check_file(writer, tmp_path / "f")
        file.write(BATCH)
        file.finish()
        writer.becomes_empty()
        assert check_file(writer, tmp_path / "f") == [b""]
