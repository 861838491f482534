# SPDX-License-Identifier: Apache-2.0
"""Pool and writer that a program starts: they end with it, and only its user reaches them."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import updraft.spark
from tests.faults.victims import has_ended
from tests.support.flight import echo_command, exchange, whole_request
from tests.support.waiting import until
from tests.support.web import fetched
from updraft.client.writer import WriterClient
from updraft.spark.interrupts import INTERRUPTS

# Prints the supervisor's pid, then does what its argument says.
_PROGRAM = """
import json, os, signal, sys
import updraft.spark
service = updraft.spark.local_pool(1) if sys.argv[1] == "pool" else updraft.spark.local_writer(sys.argv[2])
print(json.dumps([service._process.pid, str(service.log_file)]), flush=True)
{end}
"""
_ENDS = {
    "returns": "",
    "raises": "raise SystemExit(3)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "stops it": "service.stop(); service.stop()",
    "forks": "os.fork() or sys.exit(0); os.wait(); assert service._process.poll() is None",
}


@pytest.mark.parametrize("end", _ENDS)
@pytest.mark.parametrize("service", ["pool", "writer"])
def test_it_ends_with_the_program_that_started_it(service: str, end: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", _PROGRAM.format(end=_ENDS[end]), service, str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        pid, log = json.loads(started.stdout.readline())
        supervisor = _process(pid)
    assert started.returncode == {"raises": 3, "is killed": -signal.SIGKILL}.get(end, 0)
    until("the service has ended", lambda: supervisor is None or has_ended(supervisor))
    if end != "is killed":
        assert not Path(log).parent.exists()


def _process(pid: int) -> psutil.Process | None:
    """Return the process, or None if it has ended."""
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def test_a_pool_answers_on_a_socket_that_is_its_users_alone() -> None:
    with updraft.spark.local_pool(workers=1) as pool:
        path = Path(pool.endpoint.removeprefix("grpc+unix://"))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        batch = pa.record_batch({"x": [1, 2]})
        reply = exchange(f"unix:{path}", whole_request(echo_command(), batch.schema, [batch]))
        assert reply.code.name == "OK", reply.details
        until("the log says so", lambda: "pool is ready" in pool.log())
        assert repr(pool) == f"<pool at {pool.endpoint}; log: {pool.log_file}>"
    assert pool.log() == ""
    assert ", ended" in repr(pool)


def test_its_status_page_wants_the_password_which_passes_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with updraft.spark.local_pool(workers=1) as pool:
        monkeypatch.delenv("no_proxy", raising=False)
        with socket.create_server(("127.0.0.1", 0)) as proxy, monkeypatch.context() as environment:
            environment.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
            assert pool.status()["workers"]["configured"] == 1
        page, _ = fetched(pool.status_url, token=pool.status_password)
        assert "Updraft" in page
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetched(pool.status_url, token="")


def test_a_writer_writes_below_its_roots_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    table = pa.table({"x": [1, 2, 3]})
    with updraft.spark.local_writer(root, quota_bytes=2**30) as writer:
        with WriterClient(f"unix:{writer.endpoint.removeprefix('grpc+unix://')}") as client:
            with client.create(str(root / "a.parquet"), table.schema) as file:
                file.write(table)
            with pytest.raises(Exception, match="root"), client.create(str(tmp_path / "b.parquet"), table.schema):
                pass
        assert json.loads(fetched(writer.status_url, token=writer.status_password)[0])
    assert (root / "a.parquet").exists()


def test_what_it_cannot_start_with_is_said() -> None:
    with pytest.raises(updraft.spark.LocalServiceError, match="workers: input should be greater than or equal to 1"):
        updraft.spark.local_pool(workers=0)
    with pytest.raises(updraft.spark.LocalServiceError, match="worker_memory"):
        updraft.spark.local_pool(worker_memory=5)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="give at least one directory"):
        updraft.spark.local_writer()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("updraft.spark.local_pool(wor", {"workers=", "worker_memory_bytes="}),
        ("updraft.spark.local_writer('tables', quo", {"quota_bytes="}),
        ("updraft.spark.LocalPool.restart(pool, worker_m", {"worker_memory_bytes="}),
    ],
)
def test_a_notebook_completes_the_options(typed: str, completed: set[str]) -> None:
    untyped: Any = InteractiveShell
    shell = untyped()
    shell.run_cell("import updraft.spark")
    with provisionalcompleter():
        found = {each.text for each in shell.Completer.completions(typed, len(typed))}
    assert completed <= found


def test_an_option_that_does_not_exist_is_named_in_one_line_with_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(updraft.spark.LocalServiceError) as refused:
        updraft.spark.local_pool(worker=2)  # type: ignore[call-arg]
    assert (
        str(refused.value) == "the pool ended with status 2:\nlocal_pool() has no option worker: did you mean workers?"
    )
    with pytest.raises(updraft.spark.LocalServiceError, match=r"local_writer\(\) has no option quota: did you mean"):
        updraft.spark.local_writer(tmp_path, quota=2**30)  # type: ignore[call-arg]


def test_a_module_that_cannot_be_imported_is_named_at_every_start(capsys: pytest.CaptureFixture[str]) -> None:
    # The error is printed even if the log level is above notices.
    with updraft.spark.local_pool(workers=1, functions="no_such_module", log_level="error") as pool:
        said = (
            "updraft: the pool has started with a fault: the module 'no_such_module' of functions cannot be imported: "
            "Module"
        )
        assert capsys.readouterr().err.count(said) == 1
        pool.restart()
        assert capsys.readouterr().err.count(said) == 1


def test_a_service_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(updraft.spark.LocalServiceError, match="updraft-server is not installed here: pip install"):
        updraft.spark.local_pool()


def test_a_long_temporary_directory_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr("tempfile.tempdir", None)
    with updraft.spark.local_pool(workers=1) as pool:
        assert not list(long.iterdir())
        until("the log says so", lambda: "pool is ready" in pool.log())


def test_a_pool_shows_its_state_with_the_callers_token_and_puts_it_into_no_link(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    token = "of-the-caller-0123456789-0123456789"
    tokens.write_text(f"# for metrics\n{token}\n")
    with updraft.spark.local_pool(workers=1, metrics_token_file=str(tokens)) as pool:
        assert pool.status()["workers"]
        assert token not in pool.status_link
        assert token not in pool._repr_html_()
        assert pool.status_url.endswith("/status")


def test_a_leak_takes_a_quarter_of_the_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_bytes = 2 << 30
    # The package's attribute `local_pool` is the function, not the module.
    module = sys.modules["updraft.spark.local_pool"]
    monkeypatch.setattr(module, "memory_limits", lambda: {"machine": 4 * limit_bytes, "cgroup": 2**60})
    with updraft.spark.local_pool(workers=1) as pool:
        assert f"--worker-memory-bytes={limit_bytes}" in pool._process.args  # type: ignore[union-attr,operator]
    with updraft.spark.local_pool(workers=1, worker_memory_bytes=3 << 30) as pool:
        assert f"--worker-memory-bytes={3 << 30}" in pool._process.args  # type: ignore[union-attr,operator]


def test_a_list_is_an_option_too(tmp_path: Path) -> None:
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    for path in paths:
        Path(path).mkdir()
    with updraft.spark.local_pool(workers=1, writable_paths=paths) as pool:
        assert f"--writable-paths={paths[0]},{paths[1]}" in pool._process.args  # type: ignore[union-attr,operator]


def test_options_that_failed_are_forgotten() -> None:
    with updraft.spark.local_pool(workers=1) as pool:
        unknown: Any = {"worker_memory": 1}
        with pytest.raises(updraft.spark.LocalServiceError, match="worker_memory"):
            pool.restart(workers=2, **unknown)
        pool.restart()
        assert pool.status()["workers"]["configured"] == 1


def test_a_pool_without_a_status_page_says_so() -> None:
    with updraft.spark.local_pool(workers=1, metrics_listen="") as pool:
        with pytest.raises(updraft.spark.LocalServiceError, match="has no status page, because metrics_listen"):
            _ = pool.status_url
        assert "pool at grpc" in pool._repr_html_()


def test_a_stopped_pool_says_how_to_start_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with updraft.spark.local_pool(workers=1) as pool, monkeypatch.context() as fork:
        released: list[int] = []
        fork.setattr(INTERRUPTS, "release", lambda: released.append(1))
        fork.setattr(pool, "_owner", os.getppid())
        pool.stop()
        assert not released, "a fork leaves the hooks to its parent"
    assert "the pool was stopped" in pool._repr_html_()
    with pytest.raises(updraft.spark.LocalServiceError, match="start another one"):
        pool.restart()
