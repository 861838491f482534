# SPDX-License-Identifier: Apache-2.0
"""Storage that fails, reports false results or is full, and a writer that receives signals."""

from __future__ import annotations

import contextlib
import errno
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
from writer_process import Fault as FailingCall

from tests.faults.table.writer_scene import TABLE, WriterFault, WriterScene
from tests.support.disks import small_disk, why_no_mount
from updraft.errors import PoolUnavailableError, SinkError

_LOST = {"EIO": errno.EIO, "ESTALE": errno.ESTALE, "ENOSPC": errno.ENOSPC}
_STOPPED_SECONDS = 1.0
_DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
# Large enough for the good files, but too small for the file that fills the disk.
_SMALL_DISK = "12m"


def rows() -> Iterator[WriterFault]:
    """Yield failing calls, a full disk, and a fault for each writer process, phase and signal."""
    for call in ("write", "fsync", "close"):
        for name, number in _LOST.items():
            lost = FailingCall(call, ".updraft$", number, times=1)
            yield WriterFault(f"storage-{call}-{name}", _writes(lost), SinkError, published=False)
    for effect in ("done", "undone"):
        late = FailingCall("rename", "part.parquet", errno.ESTALE, effect, times=1)
        yield WriterFault(f"storage-rename-ESTALE-{effect}", _writes(late), published=True)
    refused = FailingCall("rename", "part.parquet", errno.EACCES)
    yield WriterFault("storage-rename-EACCES", _writes(refused), SinkError, published=False)
    unsynced = FailingCall("fsync", "data$", errno.EIO, times=1)
    yield WriterFault("storage-directory-fsync-EIO", _writes(unsynced), SinkError, published=True)
    once = FailingCall("open", ".updraft$", errno.ESTALE, times=1)
    yield WriterFault("storage-open-ESTALE-once", _writes(once), published=True)
    never = FailingCall("open", ".updraft$", errno.ENOSPC)
    yield WriterFault("storage-open-ENOSPC", _writes(never), SinkError, published=False)
    yield WriterFault("storage-full", _fills, SinkError, published=False, place=_small_disk, needs=why_no_mount)
    yield WriterFault("storage-file-given-up", _given_up, published=False)
    for fault in _signals():
        yield fault
        yield replace(fault, name=f"{fault.name}-with-receivers", receivers=2)
    for number in (*_DEADLY, signal.SIGSTOP):
        dies = number in _DEADLY
        # Start a single receiver, so that it holds the file's connection.
        name, happens = f"receiver-idle-{number.name}", _signalled_idle(number, _server)
        yield WriterFault(name, happens, heals=dies, receivers=1)
        name, happens = f"receiver-writing-{number.name}", _signalled_writing(number, _server)
        told = PoolUnavailableError if dies else None
        yield WriterFault(name, happens, told, published=not dies, heals=dies, receivers=1)


def _signals() -> Iterator[WriterFault]:
    """Yield signals to the process that encodes, and signals to its supervisor."""
    for number in (*_DEADLY, signal.SIGSTOP):
        name, happens = f"writer-child-idle-{number.name}", _signalled_idle(number, _child)
        yield WriterFault(name, happens, heals=number in _DEADLY)
        name, happens = f"writer-child-writing-{number.name}", _signalled_writing(number, _child)
        if number in _DEADLY:
            yield WriterFault(name, happens, PoolUnavailableError, published=False, unfinished=1, heals=True)
        else:
            yield WriterFault(name, happens, published=True)
    for number in (*_DEADLY, signal.SIGTERM, signal.SIGSTOP):
        ends = number != signal.SIGSTOP
        yield WriterFault(f"writer-idle-{number.name}", _signalled_idle(number), starts_again=ends)
        name, happens = f"writer-writing-{number.name}", _signalled_writing(number)
        if number in _DEADLY:
            told = PoolUnavailableError
            yield WriterFault(name, happens, told, published=False, unfinished=1, starts_again=ends)
        else:
            yield WriterFault(name, happens, published=True, starts_again=ends)


def _writes(call: FailingCall) -> Callable[[WriterScene], None]:
    def happens(scene: WriterScene) -> None:
        scene.fail(call)
        try:
            scene.write()
        finally:
            scene.fail()

    return happens


def _fills(scene: WriterScene) -> None:
    with scene.open_file("part.parquet") as file:
        for _ in range(100):
            file.write(TABLE)


class _GivenUpError(Exception):
    pass


def _given_up(scene: WriterScene) -> None:
    with contextlib.suppress(_GivenUpError), scene.open_file("part.parquet") as file:
        file.write(TABLE)
        raise _GivenUpError


def _supervisor(scene: WriterScene) -> psutil.Process:
    return psutil.Process(scene.writer.pid)


def _child(scene: WriterScene) -> psutil.Process:
    child = scene.child()
    assert child is not None
    return child


def _server(scene: WriterScene) -> psutil.Process:
    server = scene.server()
    assert server is not None
    return server


def _signalled_idle(
    number: signal.Signals, victim: Callable[[WriterScene], psutil.Process] = _supervisor
) -> Callable[[WriterScene], None]:
    return lambda scene: _signalled(victim(scene), number)


def _signalled_writing(
    number: signal.Signals, victim: Callable[[WriterScene], psutil.Process] = _supervisor
) -> Callable[[WriterScene], None]:
    def happens(scene: WriterScene) -> None:
        with scene.open_file("part.parquet") as file:
            file.write(TABLE)
            _signalled(victim(scene), number)
            file.write(TABLE)

    return happens


def _signalled(process: psutil.Process, number: signal.Signals) -> None:
    process.send_signal(number)
    if number == signal.SIGSTOP:
        # The process stays stopped for this long.
        time.sleep(_STOPPED_SECONDS)
        process.resume()


def _small_disk(root: Path) -> contextlib.AbstractContextManager[None]:
    return small_disk(root, _SMALL_DISK)
