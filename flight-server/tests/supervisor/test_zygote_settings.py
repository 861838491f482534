# SPDX-License-Identifier: Apache-2.0
"""Paths and variables that the supervisor tells the workers' side to hide from functions."""

from pathlib import Path

import pytest

from updraft_server.settings import ServeSettings
from updraft_server.supervisor.zygote_settings import zygote_settings


def test_secrets_and_the_pools_state_are_hidden(tmp_path: Path) -> None:
    settings = ServeSettings(
        token_file=Path("/secrets/tokens"),
        tls_key_file=Path("/secrets/key"),
        tls_certificate_file=Path("/certificate"),
        hidden_paths=("/more",),
        writable_paths=("/data",),
    )
    (tmp_path / "own").mkdir()
    worker = zygote_settings(settings, tmp_path / "own", {tmp_path / "own", tmp_path / "front"}).worker
    assert set(worker.hidden_paths) == {
        str(tmp_path / "own"),
        str(tmp_path / "front"),
        "/secrets/tokens",
        "/secrets/key",
        "/more",
    }
    assert set(worker.readable_paths) == {str(tmp_path / "own" / "files")}
    assert worker.writable_paths == ("/data",)


def test_paths_mean_the_same_in_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = zygote_settings(ServeSettings(token_file=Path("tokens")), Path(), {Path("own")})
    named = [settings.files_directory, settings.scratch_directory, *settings.worker.hidden_paths]
    assert all(Path(path).is_absolute() for path in named)
