# SPDX-License-Identifier: Apache-2.0
"""Audit records of a writer about its files."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from running_writer import command, running_writer, wait_for

from updraft.errors import PoolUnavailableError, UpdraftError

ROWS = pa.record_batch({"n": pa.array(range(10))})


def write(writer: Any, path: Path) -> None:
    with writer.client() as client, client.create(str(path), ROWS.schema) as file:
        file.write(ROWS)


def records(log: Path, count: int) -> list[dict[str, Any]]:
    give_up_seconds = time.monotonic() + 60
    while len(lines := log.read_text().splitlines()) < count:
        assert time.monotonic() < give_up_seconds, lines
        time.sleep(0.01)
    return [json.loads(line) for line in lines]


def test_files_are_recorded_with_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    log = tmp_path / "audit"
    with running_writer(tmp_path / "root", audit_file=log) as writer:
        write(writer, tmp_path / "root/f")
        with pytest.raises(UpdraftError):
            write(writer, tmp_path / "elsewhere")
        opened, ended, *others = records(log, 4)
    size = (tmp_path / "root/f").stat().st_size
    assert (opened["event"], opened["path"], opened["format"]) == ("opened", f"{tmp_path}/root/f", "parquet")
    assert (ended["event"], ended["outcome"], ended["rows"], ended["bytes"]) == ("ended", "ok", 10, size)
    assert others[-1]["outcome"] == "WriteRefusedError"


def test_no_file_is_made_that_cannot_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft.service.audit._WRITE_TIMEOUT_SECONDS", 1.0)
    (tmp_path / "root").mkdir()
    with running_writer(tmp_path / "root", audit_file=Path("/dev/full")) as writer:
        with pytest.raises(PoolUnavailableError, match="this writer refuses work that it cannot record"):
            write(writer, tmp_path / "root/f")
        assert not list((tmp_path / "root").iterdir())


def test_who_may_not_write_is_recorded_when_it_asks_whether_it_may(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    log, identities = tmp_path / "audit", tmp_path / "identities.toml"
    identities.write_text(
        "".join(
            f'[[identity]]\nname = "{scope}"\ntenant = "a"\nscopes = ["{scope}"]\n'
            f'token_sha256 = ["{hashlib.sha256(scope.encode()).hexdigest()}"]\n'
            for scope in ("write", "call")
        )
    )

    def check(writer: Any, path: Path, token: str) -> None:
        asked = flight.Action("updraft.check_write", command(path).SerializeToString())
        with flight.connect(f"grpc://{writer.address}") as client:
            options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=60)
            assert list(client.do_action(asked, options))

    with running_writer(tmp_path / "root", audit_file=log, identities_file=identities) as writer:
        check(writer, tmp_path / "root/f", "write")
        with pytest.raises(flight.FlightUnauthorizedError):
            check(writer, tmp_path / "root/f", "call")
        with pytest.raises(flight.FlightUnauthorizedError):
            check(writer, tmp_path / "elsewhere", "write")
        scope, place = records(log, 2)
    assert (scope["event"], scope["action"], scope["identity"]) == ("refused", "updraft.check_write", "call")
    assert (scope["outcome"], place["outcome"]) == ("PermissionDeniedError", "WriteRefusedError")
    assert str(tmp_path / "elsewhere") in place["reason"]


def test_files_are_made_where_the_operator_has_chosen_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with running_writer(tmp_path / "root", audit_file=Path("/dev/full"), audit_failure="count") as writer:
        write(writer, tmp_path / "root/f")
        registry = writer.writer.metrics.registry
        wait_for(
            lambda: registry.get_sample_value("updraft_writer_audit_records_total", {"outcome": "lost"}) == 2,
            "the loss of both records",
        )
    assert (tmp_path / "root/f").exists()
