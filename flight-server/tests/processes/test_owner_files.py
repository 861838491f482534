# SPDX-License-Identifier: Apache-2.0
"""Attempts of a session function in a real worker to read, change and kill what is not its own.

Each attempt also runs in an unconfined process, where it must succeed; otherwise the test would prove nothing.
"""

import contextlib
import os
import pickle
import select
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mounting import needs_mounts
from ordinary_users import can_become_an_ordinary_user, ordinary_user
from pool_driver import Zygotes, batches_of, exchange, running_pool
from pyspark.sql.types import StringType
from session_commands import scalar_arrow

from updraft.v1 import exchange_pb2
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.linux.landlock import LEAST_VERSION, landlock_version
from updraft_server.pool.interface import until

pytestmark = pytest.mark.skipif(landlock_version() < LEAST_VERSION, reason="this kernel has no Landlock")
scoped = pytest.mark.skipif(landlock_version() < 6, reason="this kernel's Landlock has no scopes")

HANG_SECONDS = 60.0

_ATTEMPT = """
import errno, os
try:
    exec(code, {"os": os, **names})
except OSError as error:
    # Landlock, or what is read-only: the kernel asks the latter first, where there is both.
    refusals = errno.EACCES, errno.EPERM, errno.EROFS
    outcome = "refused" if error.errno in refusals else type(error).__name__
else:
    outcome = "done"
"""


def attempting(code: str, **names: Any) -> Any:
    """Return a session function that runs `code` and reports the outcome."""
    source = _ATTEMPT

    def attempt(x):
        import pyarrow as pa

        scope = {"code": code, "names": names}
        exec(source, scope)
        return pa.array([scope["outcome"]])

    return scalar_arrow(attempt, StringType())


def unconfined(code: str, **names: Any) -> str:
    """Return the outcome in an unconfined process outside the pool."""
    script = f"code, names = {code!r}, {names!r}\n{_ATTEMPT}\nprint(outcome)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


async def outcome(pool: Any, code: str, **names: Any) -> Any:
    reply = await exchange(pool, batches_of([1]), attempting(code, **names))
    assert reply.error is None, reply.error
    return reply.table.column(0)[0].as_py()


class House:
    """Private files of a pool, and a zygote of that pool."""

    def __init__(self, directory: Path) -> None:
        self.runtime = directory / "runtime"
        self.secrets = directory / "secrets"
        self.data = directory / "data"
        self.shared = directory / "shared"
        for made in (self.runtime, self.secrets, self.data, self.shared):
            made.mkdir()
        self.artifacts = self.runtime / "artifacts"
        self.artifacts.mkdir()
        for file in (self.secrets / "tokens", self.secrets / "key.pem", self.data / "model", self.artifacts / "value"):
            file.write_text("content")
        settings = WorkerSettings(
            allow_session_functions=True,
            hidden_paths=(str(self.runtime), str(self.secrets / "tokens"), str(self.secrets / "key.pem")),
            readable_paths=(str(self.artifacts),),
            writable_paths=(str(self.shared),),
        )
        self.zygotes = Zygotes(self.runtime, settings)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    # Unlike pytest's, short enough for the path of a Unix socket.
    with tempfile.TemporaryDirectory(prefix="updraft-house-") as directory:
        made = House(Path(directory))
        yield made
        made.zygotes.stop()


_READ = "open(path, 'rb').read(1)"
_WRITE = "open(path, 'ab').close()"
_LIST = "os.listdir(path)"


@pytest.mark.parametrize("code", [_READ, "os.link(path, path + '.linked')", "os.rename(path, path + '.moved')"])
@pytest.mark.parametrize("secret", ["tokens", "key.pem"])
async def test_a_secret_is_out_of_reach(house: House, code: str, secret: str) -> None:
    path = house.secrets / secret
    async with running_pool(house.zygotes) as pool:
        assert await outcome(pool, code, path=str(path)) == "refused"
        assert await outcome(pool, code, path=f"/proc/self/root{path}") == "refused"
    copy = house.data / uuid.uuid4().hex
    copy.write_bytes(path.read_bytes())
    assert unconfined(code, path=str(copy)) == "done"


@pytest.mark.parametrize(
    ("code", "where"),
    [
        (_LIST, "."),
        (_LIST, "scratch"),
        (_LIST, "workers"),
        (_WRITE, "workers/forged"),
        (_WRITE, "artifacts/value"),
        (_WRITE, "artifacts/new"),
        (_WRITE, "front.lock"),
        ("os.unlink(path)", "artifacts/doomed"),
        ("os.rename(path, path + '-gone')", "scratch"),
    ],
)
async def test_the_state_of_the_pool_is_out_of_reach(house: House, code: str, where: str) -> None:
    (house.artifacts / "doomed").touch()
    path = str(house.runtime / where)
    async with running_pool(house.zygotes) as pool:
        assert await outcome(pool, code, path=path) == "refused"
    assert unconfined(code, path=path) == "done"
    with contextlib.suppress(FileNotFoundError):
        (house.runtime / "scratch-gone").rename(house.runtime / "scratch")


@needs_mounts
@pytest.mark.parametrize("code", ["os.chmod(path, 0)", "os.utime(path)", "os.chown(path, -1, -1)"])
@pytest.mark.parametrize("file", ["secrets/tokens", "runtime/artifacts/value", "data/model"])
async def test_rights_times_and_attributes_are_out_of_reach_too(house: House, code: str, file: str) -> None:
    path = house.runtime.parent / file
    async with running_pool(house.zygotes) as pool:
        assert await outcome(pool, code, path=str(path)) == "refused"
        # This process sees the same files and may change them.
        assert await outcome(pool, code, path=f"/proc/{os.getpid()}/root{path}") == "refused"
    assert unconfined(code, path=str(path)) == "done"
    path.chmod(0o644)


async def test_flags_are_out_of_reach_where_nobody_may_mount(
    zygotes_that_may_not_mount: Zygotes, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code = """
import fcntl
flags = bytearray(8)
with open(path) as file:
    fcntl.ioctl(file, 0x80086601, flags)
    fcntl.ioctl(file, 0x40086602, flags)
"""
    assert unconfined(code, path=str(tmp_path / "file")) == "done"
    async with running_pool(zygotes_that_may_not_mount) as pool:
        assert await outcome(pool, code, path=str(tmp_path / "file")) == "refused"


@needs_mounts
@pytest.mark.parametrize("path", ["note", "shared"])
async def test_rights_of_what_may_be_written_may_be_changed(house: House, path: str) -> None:
    code = (
        "open(path, 'w').close(); os.chmod(path, 0o600); os.utime(path); os.chmod(os.path.dirname(path) or '.', 0o700)"
    )
    async with running_pool(house.zygotes) as pool:
        assert await outcome(pool, code, path=path if path == "note" else str(house.shared / "rights")) == "done"


@needs_mounts
async def test_a_function_can_ask_what_it_may_write(house: House) -> None:
    code = "assert os.access('.', os.W_OK) and not os.access(path, os.W_OK)"
    async with running_pool(house.zygotes) as pool:
        assert await outcome(pool, code, path=str(house.data)) == "done"


async def test_the_scratch_of_another_worker_is_out_of_reach(house: House) -> None:
    async with running_pool(house.zygotes, workers=2) as pool:
        note = "open('note', 'w').write('x')"
        paths = [str(house.zygotes.scratch / worker.worker / "note") for worker in pool.workers]
        for path in paths:
            assert unconfined("open(path, 'w').close()", path=path) == "done"
        outcomes = [await outcome(pool, _READ, path=path) for path in paths]
        assert sorted(outcomes) == ["done", "refused"], "one worker is its owner's, and has only its own"
        assert await outcome(pool, note) == "done"


@pytest.mark.parametrize(
    ("code", "path"),
    [
        (_WRITE, f"{site.getsitepackages()[0]}/planted.pth"),
        (_WRITE, f"{tempfile.gettempdir()}/updraft-planted"),
        ("os.mkdir(path)", f"{tempfile.gettempdir()}/updraft-planted-directory"),
        (_LIST, "/dev/shm"),
        ("open(path, 'w').write('x')", "/proc/self/comm"),
    ],
)
async def test_what_all_share_can_neither_be_changed_nor_searched(house: House, code: str, path: str) -> None:
    if path.endswith(".pth") and not os.access(Path(path).parent, os.W_OK):
        pytest.skip("this user could not write there anyway")
    path = path.replace("planted", f"planted-{uuid.uuid4().hex}")
    async with running_pool(house.zygotes) as pool:
        assert await outcome(pool, code, path=path) == "refused"
    assert unconfined(code, path=path) == "done"
    for clean in (os.unlink, os.rmdir):
        with contextlib.suppress(OSError):
            clean(path)


@scoped
async def test_a_function_signals_nobody_outside(house: House) -> None:
    async with running_pool(house.zygotes, workers=2) as pool:
        workers = [info.pid for info in pool.workers]
        others = [os.getpid(), house.zygotes.process.pid]
        for pid in others:
            assert await outcome(pool, "os.kill(pid, 0)", pid=pid) == "refused"
            assert unconfined("os.kill(pid, 0)", pid=pid) == "done"
        outcomes = {await outcome(pool, "os.kill(pid, 0)", pid=pid) for pid in workers for _ in range(2)}
        assert "refused" in outcomes
        assert unconfined("os.kill(pid, 0)", pid=workers[0]) == "done"


@scoped
async def test_abstract_sockets_of_others_are_out_of_reach(house: House) -> None:
    code = "import socket; socket.socket(socket.AF_UNIX).connect(path)"
    with socket.socket(socket.AF_UNIX) as listener:
        path = f"\0updraft-{uuid.uuid4().hex}"
        listener.bind(path)
        listener.listen()
        async with running_pool(house.zygotes) as pool:
            assert await outcome(pool, code, path=path) == "refused"
        assert unconfined(code, path=path) == "done"


async def test_children_are_confined_too(house: House) -> None:
    code = "import subprocess, sys; subprocess.run(['cat', path], check=True, stderr=subprocess.DEVNULL)"
    async with running_pool(house.zygotes) as pool:
        reply = await exchange(pool, batches_of([1]), attempting(code, path=str(house.secrets / "tokens")))
        assert "CalledProcessError" in reply.error.exception_class
        await until(pool, lambda: pool.idle == 1)
        assert await outcome(pool, code, path=str(house.data / "model")) == "done"


@pytest.mark.parametrize("where", ["data/model", "runtime/artifacts/value"])
async def test_what_is_not_hidden_is_read(house: House, where: str) -> None:
    async with running_pool(house.zygotes) as pool:
        assert await outcome(pool, _READ, path=str(house.runtime.parent / where)) == "done"


async def test_artifacts_of_the_owner_stay_readable_and_no_others_become_so(house: House) -> None:
    owners = [house.runtime / name for name in ("one-owner", "another-owner")]
    for owner in owners:
        owner.mkdir(exist_ok=True)
    own, others = (str(owner / "value") for owner in owners)
    command = attempting(_READ, path=own)
    async with running_pool(house.zygotes) as pool:
        first = await exchange(pool, batches_of([1]), command, artifacts_directory=str(owners[0]))
        for owner in owners:
            (owner / "value").write_bytes(pickle.dumps(1))
        # The directory was made after the worker was bound.
        second = await exchange(pool, batches_of([1]), command, broadcasts={"1": own})
        assert [reply.table.column(0)[0].as_py() for reply in (first, second)] == ["FileNotFoundError", "done"]
        assert await outcome(pool, _READ, path=others) == "refused"
        # The front never sends a bound worker such a path. If the directory was made anew, a fresh worker can read it.
        third = await exchange(pool, batches_of([1]), command, broadcasts={"1": others})
    assert third.error.kind == exchange_pb2.ERROR_KIND_POOL_UNAVAILABLE


async def test_a_function_that_may_not_write_a_file_is_told_where_it_may(house: House) -> None:
    def writes(x):
        from pathlib import Path

        return Path("/tmp/updraft-planted").write_text("x") and x

    async with running_pool(house.zygotes) as pool:
        reply = await exchange(pool, batches_of([1]), scalar_arrow(writes))
    assert reply.error is not None
    for text in (reply.error.message, reply.error.traceback):
        assert "/tmp/updraft-planted" in text
        assert "functions can write to their worker's scratch directory (tempfile, TMPDIR)" in text


async def test_a_path_that_the_operator_names_is_written(house: House) -> None:
    async with running_pool(house.zygotes) as pool:
        assert await outcome(pool, "open(path, 'w').write('x')", path=str(house.shared / "note")) == "done"
    assert (house.shared / "note").read_text() == "x"


async def test_a_registered_function_is_not_confined_and_its_worker_is_afterwards(house: House) -> None:
    path = str(house.secrets / "tokens")
    async with running_pool(house.zygotes) as pool:
        assert (await exchange(pool, batches_of([1]))).error is None
        assert await outcome(pool, _READ, path=path) == "refused"


def test_a_confined_worker_still_ends_with_the_pool() -> None:
    """A scope does not block the signal that the kernel sends to a group when its lifeline ends."""
    script = """
import asyncio, os, sys
from pathlib import Path
from pool_driver import Zygotes, batches_of, exchange, running_pool
from session_commands import scalar_arrow
from updraft_server.ipc.worker_settings import WorkerSettings

def busy(x):
    import os
    print(os.getpid(), flush=True)
    with open(os.environ["NOTE"], "w") as note:
        note.write(f"{os.getpid()}\\n")
    while True:
        pass

async def main():
    directory = Path(sys.argv[1])
    settings = WorkerSettings(allow_session_functions=True, writable_paths=(str(directory),))
    zygotes = Zygotes(directory, settings)
    async with running_pool(zygotes) as pool:
        await exchange(pool, batches_of([1]), scalar_arrow(busy, environment={"NOTE": sys.argv[1] + "/note"}))

asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # The zygote may still be writing there after its worker has ended.
    with tempfile.TemporaryDirectory(prefix="updraft-life-", ignore_cleanup_errors=True) as directory:
        note = Path(directory) / "note"
        running = subprocess.Popen([sys.executable, "-c", script, directory], env=environment)
        while not (note.exists() and note.read_text().endswith("\n")):
            assert running.poll() is None
            time.sleep(0.01)
        worker = os.pidfd_open(int(note.read_text()))
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert select.select([worker], [], [], HANG_SECONDS)[0] == [worker]
        os.close(worker)


@pytest.mark.skipif(not can_become_an_ordinary_user(), reason="this user cannot become another one")
def test_an_ordinary_user_is_confined_as_well() -> None:
    script = """
import os, sys, tempfile
from pathlib import Path
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.sandbox.owner_files import OwnerFiles
base = Path(tempfile.mkdtemp())
for name in ("runtime", "scratch"):
    (base / name).mkdir()
(base / "token").write_text("secret")
files = OwnerFiles(WorkerSettings(hidden_paths=(str(base / "runtime"), str(base / "token"))))
assert files.confine(base / "scratch")
for attempt in (lambda: open(base / "token"), lambda: os.listdir(base / "runtime"), lambda: open(base / "x", "w")):
    try:
        attempt()
    except PermissionError:
        continue
    raise SystemExit("it was not refused")
Path("own").write_text("mine")
"""
    ran = subprocess.run([*ordinary_user(), sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
