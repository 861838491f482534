# SPDX-License-Identifier: Apache-2.0
"""Sandbox layers of real workers, and how a pool reports and requires them."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pool_driver import Zygotes, pid_of, running_pool
from pyarrow import flight
from pyspark import cloudpickle
from served_pool import HANG_SECONDS, SCHEMA, Server, batch
from session_commands import said

from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.sandbox_layers import NEEDS, RESTRICTED

METRICS_TOKEN = "of-observers"

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def test_a_worker_has_no_capabilities_and_a_filter_from_its_start(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        worker = status_of(pid_of(pool, next(iter(pool.workers)).worker))
        zygote = status_of(pool.zygote_pid)
    assert (worker["NoNewPrivs"], worker["Seccomp"]) == ("1", "2")
    held = {name: int(value, 16) for name, value in worker.items() if name.startswith("Cap")}
    if os.geteuid() != 0:
        # An ordinary user cannot change its bounding set, which only limits what its programs could gain.
        del held["CapBnd"]
    assert not any(held.values())
    # The zygote kills, measures and forks, so it has no sandbox.
    assert (zygote["NoNewPrivs"], zygote["Seccomp"]) == ("0", "0")


async def test_all_layers_are_told_by_the_zygote(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert [layer.name for layer in pool.sandbox] == list(NEEDS)
        assert [layer.name for layer in pool.sandbox if not layer.is_on] == [RESTRICTED]


def traced_parent():
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    request_attach = 16
    libc.ptrace(request_attach, os.getppid(), 0, 0)
    return os.strerror(ctypes.get_errno())


def killed_zygote():
    try:
        os.kill(os.getppid(), 9)
    except PermissionError:
        return "refused"


def killed_zygote_from_a_program():
    program = f"import os; os.kill({os.getppid()}, 9)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr.splitlines()[-1]


def privileged_program():
    code = "print([l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1].strip('0') or 'none')"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


@pytest.mark.parametrize(
    ("attempt", "outcome"),
    [
        (traced_parent, "Operation not permitted"),
        (killed_zygote, "refused"),
        (killed_zygote_from_a_program, "PermissionError: [Errno 1] Operation not permitted"),
        (privileged_program, "none"),
    ],
)
async def test_a_function_reaches_neither_its_zygote_nor_privileges(
    zygotes: Zygotes, attempt: Any, outcome: str
) -> None:
    async with running_pool(zygotes) as pool:
        assert await said(pool, attempt) == outcome


def socket_to_anybody():
    import socket

    try:
        socket.create_connection(("127.0.0.1", 1), timeout=1)
    except OSError as error:
        return type(error).__name__


def program():
    try:
        return subprocess.check_output(["/bin/echo", "ran"], text=True).strip()
    except OSError as error:
        return type(error).__name__


def threads_event_loops_and_files():
    import asyncio
    import tempfile
    import threading

    import numpy as np

    found = []
    thread = threading.Thread(target=lambda: found.append(float(np.linalg.norm(np.ones(4)))))
    thread.start()
    thread.join()
    with tempfile.TemporaryFile() as file:
        found.append(file.write(b"12345"))
    return [*found, asyncio.run(asyncio.sleep(0, "slept"))]


@pytest.fixture
def restricted_zygotes(tmp_path: Path) -> Iterator[Zygotes]:
    zygotes = Zygotes(tmp_path, WorkerSettings(allow_session_functions=True), restricted=True)
    yield zygotes
    zygotes.stop()


async def test_a_restricted_worker_has_neither_network_nor_subprocesses(restricted_zygotes: Zygotes) -> None:
    async with running_pool(restricted_zygotes) as pool:
        assert all(layer.is_on for layer in pool.sandbox)
        assert await said(pool, socket_to_anybody) == "PermissionError"
        assert await said(pool, program) == "PermissionError"
        assert await said(pool, threads_event_loops_and_files) == "[2.0, 5, 'slept']"


async def test_a_compatible_worker_has_both(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert await said(pool, socket_to_anybody) == "ConnectionRefusedError"
        assert await said(pool, program) == "ran"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    observers = tmp_path / "metrics-token"
    observers.write_text(METRICS_TOKEN)
    options = (
        "--workers=1",
        "--profile=restricted",
        "--session-functions=unsigned",
        f"--metrics-token-file={observers}",
    )
    running = Server(tmp_path, *options, f"--require={','.join(NEEDS)}", stderr=subprocess.PIPE, text=True)
    yield running
    running.process.kill()
    running.process.wait()
    assert running.process.stderr is not None
    running.process.stderr.close()


def test_a_pool_says_in_its_log_and_its_metrics_which_layers_are_on(server: Server) -> None:
    url, headers = f"http://{server.ready()['metrics_listen']}/metrics", {"Authorization": f"Bearer {METRICS_TOKEN}"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        metrics = answer.read().decode()
    for name in NEEDS:
        assert f'updraft_pool_sandbox_layer{{layer="{name}"}} 1.0' in metrics
    assert server.stop() == 0
    assert server.process.stderr is not None
    (ready,) = (line for line in server.process.stderr if "pool is ready" in line)
    assert re.search(rf"sandbox\W+{', '.join(NEEDS)}", ready)


WITHOUT_FILTERS = """
import errno, sys
from updraft_server.linux import seccomp
def install(_program):
    raise OSError(errno.EINVAL, "seccomp: Invalid argument")
seccomp.install = install
"""


@pytest.fixture
def kernel_without_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Python in a pool's processes find that the kernel accepts no filter."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_FILTERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("kernel_without_filters")
def test_a_pool_without_a_required_layer_does_not_start_and_says_which_kernel_has_it(tmp_path: Path) -> None:
    command = Server.command("--workers=1", "--require=seccomp")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ended.returncode == 2
    assert "the layer 'seccomp' is required, but it is off: seccomp: Invalid argument" in ended.stderr
    assert NEEDS["seccomp"] in ended.stderr


@pytest.mark.usefixtures("kernel_without_filters")
def test_a_restricted_pool_that_cannot_restrict_does_not_start() -> None:
    command = Server.command("--workers=1", "--profile=restricted")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ended.returncode == 2
    assert "the layer 'restricted' is required, but it is off: there is no filter of system calls" in ended.stderr


@pytest.mark.usefixtures("kernel_without_filters")
def test_a_pool_without_a_layer_that_is_not_required_starts_and_tells(tmp_path: Path) -> None:
    server = Server(tmp_path, "--workers=1", stderr=subprocess.PIPE, text=True)
    try:
        worker = status_of(next(iter(server.ready()["workers"].values())))
        with urllib.request.urlopen(f"http://{server.ready()['metrics_listen']}/metrics") as answer:
            assert 'updraft_pool_sandbox_layer{layer="seccomp"} 0.0' in answer.read().decode()
    finally:
        status = server.stop()
    assert status == 0
    assert server.process.stderr is not None
    with server.process.stderr as log:
        assert any(re.search("off: .*seccomp", line) for line in log)
    assert worker["Seccomp"] == "0"
    assert int(worker["CapEff"], 16) == 0


ONLY_IN_THE_TRIAL = """
import mmap
from updraft_server.linux import seccomp
install = seccomp.install
# Forks share it.
tried = mmap.mmap(-1, 1)
def first_time_only(program):
    if tried[0]:
        raise OSError(12, "seccomp: Cannot allocate memory")
    tried[0] = 1
    install(program)
seccomp.install = first_time_only
"""


def test_a_worker_that_cannot_enter_the_sandbox_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(ONLY_IN_THE_TRIAL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = Server.command("--workers=1")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ended.returncode == 2
    assert "workers do not start" in ended.stderr


TWO_FUNCTIONS = """
import socket
import subprocess
import pyarrow as pa
from updraft import function

def tried(batch: pa.RecordBatch) -> pa.RecordBatch:
    said = []
    for attempt in (lambda: socket.socket().close(), lambda: subprocess.run(["true"], check=True)):
        try:
            attempt()
            said.append("done")
        except PermissionError:
            said.append("refused")
    return pa.record_batch({"_0": pa.array(said)})

open_, closed = (function(name=name)(tried) for name in ("open", "closed"))
"""


@pytest.fixture
def two_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_functions.py").write_text(TWO_FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def outcome_of(client: flight.FlightClient, function: str) -> list[str]:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(function))
    with writer:
        writer.begin(SCHEMA)
        writer.write_batch(batch(1, rows=2))
        writer.done_writing()
        said: list[str] = reader.read_all()["_0"].to_pylist()
    return said


@pytest.mark.usefixtures("two_functions")
def test_the_operator_restricts_one_function_and_not_the_other(tmp_path: Path) -> None:
    options = ("--workers=1", "--functions=two_functions", "--restricted-functions=closed")
    server = Server(tmp_path, *options)
    try:
        with server.client() as client:
            # Alternates between both with one worker: the closed function stays closed, and that worker does not serve
            # the open one.
            for _ in range(2):
                assert outcome_of(client, "closed") == ["refused", "refused"]
                assert outcome_of(client, "open") == ["done", "done"]
    finally:
        status = server.stop()
    assert status == 0


@pytest.mark.usefixtures("two_functions")
def test_a_function_that_is_not_there_cannot_be_restricted() -> None:
    command = Server.command("--workers=1", "--functions=two_functions", "--restricted-functions=closed,typo")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ended.returncode == 2
    assert "--restricted-functions names typo, which no module of --functions registers" in ended.stderr


@pytest.mark.usefixtures("kernel_without_filters")
def test_a_pool_that_cannot_restrict_a_function_does_not_start() -> None:
    command = Server.command("--workers=1", "--restricted-functions=echo")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ended.returncode == 2
    assert "--restricted-functions needs the layer 'seccomp'" in ended.stderr
