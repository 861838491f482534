# SPDX-License-Identifier: Apache-2.0
"""Hostile archives meet limits in a process of their own: the front does not grow and keeps nothing."""

import ast
import asyncio
import io
import os
import re
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_archives import GIB, HOSTILE, LIMITS, RoomOf, header, of_directories, with_hole

from updraft.errors import PoolFullError, PoolUnavailableError, ProtocolError
from updraft_server.front.artifacts import unpackers
from updraft_server.front.artifacts.unpackers import Unpackers
from updraft_server.ipc.unpacking import UnpackBounds
from updraft_server.linux.capabilities import DAC_READ_SEARCH
from updraft_server.linux.landlock import can_confine_files
from updraft_server.unpacker.archive import RefusedArchiveError, unpack

MIB = 1024 * 1024


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def children() -> set[int]:
    return {int(pid) for path in Path("/proc/self/task").iterdir() for pid in (path / "children").read_text().split()}


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


@pytest.mark.parametrize(("write", "words"), HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_archive_is_refused_without_memory_of_the_front(
    tmp_path: Path, write: Callable[[Path], None], words: str
) -> None:
    write(tmp_path / "archive")
    forget_peak()
    before_bytes = peak_bytes()
    with pytest.raises(ProtocolError, match=words) as raised:
        await Unpackers(LIMITS).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", RoomOf())
    assert raised.value.message.startswith("artifact a ")
    assert str(tmp_path) not in raised.value.message
    assert peak_bytes() - before_bytes < 32 * MIB
    assert leftovers(tmp_path) == ["archive"]
    assert children() == set()


async def test_the_memory_of_an_unpacker_has_a_limit_of_the_kernel(tmp_path: Path) -> None:
    with_hole(header("././@LongLink", GIB, tarfile.GNUTYPE_LONGNAME))(tmp_path / "archive")
    careless = replace(LIMITS, header_bytes=2 * GIB)
    with pytest.raises(ProtocolError, match="bytes of memory"):
        await Unpackers(careless).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", RoomOf())


async def test_an_archive_without_bounds_of_time_ends_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(bytes(10))
    hurried = replace(LIMITS, base_seconds=0.01)
    with pytest.raises(PoolUnavailableError, match=r"within 0\.01"):
        await Unpackers(hurried).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", RoomOf())
    assert leftovers(tmp_path) == ["archive"]
    assert children() == set()


async def test_room_is_asked_for_before_the_disk_is_used(tmp_path: Path) -> None:
    class Watching(RoomOf):
        async def unpack_to(self, tree_bytes: int) -> None:
            if self.asked:
                found = self.measure(tmp_path / "unpacked")
                assert max(found.size_bytes, found.files * self.volume.entry_bytes) <= self.asked[-1]
            await super().unpack_to(tree_bytes)

    (tmp_path / "archive").write_bytes(of_directories(4, depth=50))
    room = Watching()
    await Unpackers(LIMITS).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", room)
    assert room.measure(tmp_path / "unpacked").files == 200
    assert room.asked[-1] >= 200 * room.volume.entry_bytes
    assert len(room.asked) > 2


async def test_an_archive_without_room_is_given_up_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(of_directories(4, depth=50))
    with pytest.raises(PoolFullError, match="bytes are too many"):
        await Unpackers(LIMITS).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", RoomOf(MIB))
    assert leftovers(tmp_path) == ["archive"]
    assert children() == set()


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Run this program in place of the unpacker."""
    monkeypatch.setattr(unpackers, "_COMMAND", (sys.executable, "-I", "-S", "-c", text))


HALF_DONE = "import os, signal\nopen('half', 'w').write('done')\n"

FAILING = {
    "killed": (HALF_DONE + "os.kill(os.getpid(), signal.SIGKILL)", PoolUnavailableError, "was killed by SIGKILL"),
    "gone": (HALF_DONE + "os._exit(3)", PoolUnavailableError, "exited with code 3"),
    "out of CPU time": (HALF_DONE + "os.kill(os.getpid(), signal.SIGXCPU)", ProtocolError, "CPU time"),
    "lies": (HALF_DONE + "print('unpacked', flush=True)", PoolUnavailableError, "exited with code 0"),
    "babbles": (HALF_DONE + "while True: os.write(1, b'unpacked' * 9999)", PoolUnavailableError, "was not unpacked"),
    "stays": (HALF_DONE + "os.close(1); signal.pause()", PoolUnavailableError, "within 1 seconds"),
    "full disk": (HALF_DONE + "print('fault\\n28\\n')", OSError, "No space left"),
    "asks in vain": (HALF_DONE + "print('room 1', flush=True)", PoolUnavailableError, "exited with code 0"),
    "asks for nothing": (HALF_DONE + "print('room x', flush=True)", PoolUnavailableError, "exited with code 0"),
    "wrong number": (HALF_DONE + "print('fault\\n-1\\n')", PoolUnavailableError, "exited with code 0"),
}


@pytest.mark.parametrize(("text", "error", "words"), FAILING.values(), ids=FAILING)
async def test_an_unpacker_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: type[Exception], words: str
) -> None:
    program(monkeypatch, text)
    (tmp_path / "archive").touch()
    limits = replace(LIMITS, base_seconds=1 if words == "within 1 seconds" else 60)
    with pytest.raises(error, match=words):
        await Unpackers(limits).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", RoomOf())
    assert leftovers(tmp_path) == ["archive"]
    assert children() == set()


async def test_a_cancelled_unpacker_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    program(monkeypatch, HALF_DONE + "open('../ready', 'w').close(); signal.pause()")
    (tmp_path / "archive").touch()
    unpacking = asyncio.ensure_future(
        Unpackers(LIMITS).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", RoomOf())
    )
    await asyncio.to_thread(ready.read_bytes)
    unpacking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unpacking
    assert sorted(leftovers(tmp_path)) == ["archive", "ready"]
    assert children() == set()


LOOKING_ROUND = """
import sys
sys.path.append(sys.argv.pop(1))
import ctypes, os, resource, signal, socket
from updraft_server.ipc.unpacking import *
from updraft_server.unpacker.process import _give_up
bounds = UnpackBounds.decode(sys.argv[1])
status = open('/proc/self/status')
_give_up(bounds)
seen = [sorted(os.environ)]
held = [int(line.split()[1], 16) for line in status if line.startswith(('CapPrm', 'CapEff', 'CapInh', 'CapAmb'))]
status.close()
def attempt(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return 'done'
prctl = ctypes.CDLL(None).prctl
seen.append([number for number in range(3, 64) if attempt(lambda: os.fstat(number)) == 'done'])
seen.append([prctl(3, 0, 0, 0, 0), prctl(39, 0, 0, 0, 0)])
seen.append(held)
seen.append([resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)])
seen.append(attempt(lambda: open('/etc/passwd')))
seen.append(attempt(lambda: open('../outside', 'w')))
seen.append(attempt(lambda: os.rename('../archive', 'mine')))
seen.append(attempt(lambda: os.mkfifo('pipe')))
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if libc[name](*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
seen.extend(
    [
        attempt(lambda: os.kill(os.getppid(), 0)),
        attempt(lambda: os.killpg(os.getpgid(os.getppid()), 0)),
        attempt(lambda: os.kill(os.getpid(), 0)),
        attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)),
        attempt(lambda: call('ptrace', 16, os.getppid(), 0, 0)),
        attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)),
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
        attempt(lambda: socket.socketpair()),
        attempt(lambda: os.execv('/bin/true', ['true'])),
        attempt(lambda: call('vfork')),
        attempt(lambda: call('fork')),
        attempt(lambda: call('unshare', 0x10000000)),
        attempt(lambda: call('setrlimit', resource.RLIMIT_CORE, (ctypes.c_ulong * 2)(0, 0))),
        attempt(lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 0)),
        attempt(lambda: call('fcntl', 0, 8, os.getppid())),
    ]
)
print(UnpackVerdict(UnpackOutcome.REFUSED, repr(seen)).encode().decode(), flush=True)
"""


async def test_an_unpacker_has_nothing_but_its_archive_and_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPDRAFT_TOKEN", "secret")
    secret, _ = pipe = os.pipe()
    os.set_inheritable(secret, True)
    monkeypatch.setattr(unpackers, "_COMMAND", (*unpackers._COMMAND[:-2], LOOKING_ROUND, unpackers._PACKAGES))
    (tmp_path / "archive").write_bytes(bytes(10240))
    try:
        with pytest.raises(ProtocolError) as raised:
            await Unpackers(LIMITS).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", RoomOf())
    finally:
        for descriptor in pipe:
            os.close(descriptor)
    seen = ast.literal_eval(raised.value.message.split(" ", 2)[2])
    environment, descriptors, flags, capabilities, limits, *attempts = seen
    # Only root had capabilities to begin with.
    assert not any(held & ~(1 << DAC_READ_SEARCH) for held in capabilities) or os.getuid() != 0
    assert not set(environment) - {"LC_CTYPE"}
    assert descriptors == []
    assert flags == [0, 1]
    assert limits == [LIMITS.memory_bytes, 10240, 0]
    files, calls = attempts[:4], attempts[4:]
    if can_confine_files():
        assert files == ["PermissionError"] * 4
    assert calls == ["PermissionError"] * 15


async def test_an_unpacker_ends_with_the_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    (tmp_path / "archive").write_bytes(bytes(10240))
    with pytest.raises(PoolUnavailableError, match="exited with code 1"):
        await Unpackers(LIMITS).unpack("artifact a", tmp_path / "archive", tmp_path / "unpacked", RoomOf())


async def test_a_stopped_unpacker_is_killed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    (tmp_path / "archive").touch()
    with pytest.raises(PoolUnavailableError, match="within 1 seconds"):
        await Unpackers(replace(LIMITS, base_seconds=1)).unpack(
            "a", tmp_path / "archive", tmp_path / "unpacked", RoomOf()
        )
    assert children() == set()


def test_a_python_that_cannot_unpack_safely_refuses_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.2, for instance, has no filters for archives."""
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(RefusedArchiveError, match=r"the pool needs 3\.11\.4 or newer"):
        unpack(io.BytesIO(), str(tmp_path), UnpackBounds(*[0] * len(UnpackBounds._fields)), lambda _: None)
