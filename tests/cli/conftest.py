# SPDX-License-Identifier: Apache-2.0
"""Pool that anyone may use, a careful one, and a writer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.pool import LocalPool
from tests.support.writer import LocalWriter
from updraft_cli.main import main

Run = Callable[..., subprocess.CompletedProcess[str]]

TOKEN = "letmein"


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=1) as running:
        yield running


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWriter]:
    with LocalWriter(tmp_path_factory.mktemp("files")) as running:
        yield running


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "ours")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "theirs")


@pytest.fixture(scope="session")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(TOKEN)
    return path


@pytest.fixture(scope="session")
def careful_pool(authority: Authority, token_file: Path) -> Iterator[LocalPool]:
    """Start a pool for localhost that requires a token and a client certificate, and runs only registered functions."""
    own = authority.identity("localhost")
    arguments = [
        *("--tls-certificate-file", str(own.certificate), "--tls-key-file", str(own.key)),
        *("--tls-client-ca-file", str(authority.certificate), "--token-file", str(token_file)),
    ]
    with LocalPool(workers=1, session_functions="off", arguments=arguments) as running:
        yield running


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `updraft` with arguments in this process, because a new one would spend most of its time on imports."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["updraft", *arguments])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, shown.out, shown.err)

    return run


@pytest.fixture
def updraft(typed: Run) -> Run:
    """Run a command that calls a service, with a long timeout for slow machines."""
    return lambda *arguments: typed(*arguments, "--timeout-seconds", "60")


@pytest.fixture(autouse=True)
def log_key_file(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the command's secret out of the home directory of the user who runs these tests."""
    path = tmp_path_factory.mktemp("state") / "updraft/log-key"
    monkeypatch.setenv("UPDRAFT_CLIENT_LOG_KEY_FILE", str(path))
    return path
