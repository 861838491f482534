# SPDX-License-Identifier: Apache-2.0
"""Secret by which a pool recognizes its user's calls."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from updraft.client.connection import Connection
from updraft.client.credentials import CredentialsError
from updraft.client.endpoint import Endpoint
from updraft.client.log_key import default_file, log_key, make_secret

POOL, OTHER = Endpoint.parse("grpc://a:1"), Endpoint.parse("grpc://b:1")


def test_each_pool_gets_a_key_of_its_own_that_stays(tmp_path: Path) -> None:
    file = tmp_path / "state/log-key"
    assert log_key(file, POOL) == log_key(None, POOL) == ""
    make_secret(file)
    key = log_key(file, POOL)
    make_secret(file)
    assert log_key(file, POOL) == key
    assert len({key, log_key(file, OTHER), file.read_text().strip()}) == 3
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["log-key"]


def test_commands_that_begin_together_agree_on_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "log-key"

    def key(_: int) -> str:
        make_secret(file)
        return log_key(file, POOL)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(key, range(64)))) == 1


def test_a_connection_sends_the_key_if_there_is_a_secret(tmp_path: Path) -> None:
    environment = {"UPDRAFT_CLIENT_ENDPOINT": "grpc://a:1", "HOME": str(tmp_path)}
    connection = Connection.of({}, environment)
    assert not connection.metadata
    make_secret(default_file(environment))
    assert connection.metadata == (("x-updraft-log-key", connection.log_key),)
    assert len(connection.log_key) == 64
    other = Connection.of({"log_key_file": tmp_path / "none"}, environment)
    assert not other.metadata


def test_the_secret_lies_in_the_users_state() -> None:
    assert default_file({"HOME": "/home/me"}) == Path("/home/me/.local/state/updraft/log-key")
    assert default_file({"HOME": "/home/me", "XDG_STATE_HOME": "/state"}) == Path("/state/updraft/log-key")
    assert default_file({}) is None


def test_a_secret_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CredentialsError, match="file/log-key cannot be made for the log key"):
        make_secret(tmp_path / "file/log-key")
    with pytest.raises(CredentialsError, match="UPDRAFT_CLIENT_LOG_KEY_FILE"):
        make_secret(None)
