# SPDX-License-Identifier: Apache-2.0
"""Functions that use too much, leave things behind or cannot be stopped, and malformed archives."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import psutil

from tests.faults.table import hostile
from tests.faults.table.fault import ABORTED, CANCELLED, DEADLINE, OK, UNAVAILABLE, Fault, Pool
from tests.faults.table.functions import computing, note_and_wait, noting, well
from tests.faults.table.processes import archive
from tests.faults.table.scene import Scene
from tests.support.waiting import until
from updraft.v1.exchange_pb2 import Limits

_USER_ERROR = frozenset({grpc.StatusCode.UNKNOWN})
_REFUSED = frozenset({grpc.StatusCode.INVALID_ARGUMENT})
_LIMITED = Limits(worker_memory_bytes=1 << 30)
_SHORT_SECONDS = 3.0
_TIMED = ("--batch-timeout-seconds", "1")
_SILENT = ("--worker-silence-seconds", "2")


def rows() -> Iterator[Fault]:
    """Yield functions that misbehave, with and without a client that cancels, and archives that clients upload."""
    yield Fault("bomb-of-forks", _runs(hostile.forks), OK)
    yield Fault("bomb-of-threads", _runs(hostile.starts_threads), OK)
    yield Fault("bomb-of-memory-in-a-limit", _runs(hostile.takes_memory, limits=_LIMITED), _USER_ERROR)
    yield Fault("bomb-of-memory-killed-by-the-kernel", _runs(hostile.takes_memory_and_dies), ABORTED)
    yield Fault("bomb-of-printed-output", _runs(hostile.prints), OK)
    yield Fault("bomb-of-a-reply", _runs(hostile.answers_too_much), _REFUSED)
    yield Fault("bomb-of-descriptors", _runs(hostile.opens_files), OK)
    yield Fault("bomb-of-files", _runs(hostile.leaves_files, is_lasting=False), OK)
    yield Fault("daemons-that-ignore-sigterm", _runs(hostile.daemons), OK)
    yield Fault("daemons-that-are-programs", _runs(hostile.programs), OK)
    yield Fault("worker-exits-without-a-word", _runs(hostile.exits), ABORTED)
    yield Fault("worker-reads-address-zero", _runs(hostile.overflows_the_stack), ABORTED)
    yield Fault("worker-closes-its-descriptors", _runs(hostile.closes_everything), ABORTED)
    yield Fault("c-code-holds-the-lock-for-a-while", _runs(hostile.held_in_c(2)), OK)
    for name, function in _ENDLESS.items():
        yield Fault(f"{name}-and-its-client-cancels", _cancelled(function), CANCELLED)
        yield Fault(f"{name}-beyond-the-deadline", _runs(function, timeout_seconds=_SHORT_SECONDS), DEADLINE)
    # The two functions in C cannot stop the worker's batch timer. A function that stops it goes unnoticed until it has
    # been silent too long.
    for name in ("c-code-sleeps-with-the-lock", "c-code-spins-with-the-lock"):
        yield Fault(f"{name}-beyond-the-batch-timeout", _ended(_ENDLESS[name]), DEADLINE, options=_TIMED)
    for name in ("function-catches-everything", "function-stops-its-worker", "c-code-sleeps-with-the-lock"):
        yield Fault(f"{name}-and-is-silent", _ended(_ENDLESS[name]), DEADLINE, options=_SILENT)
    yield Fault("archive-cut-short", _uploads(archive(1 << 20)[: 1 << 19]), _REFUSED)
    yield Fault("archive-of-noise", _uploads(bytes(range(256)) * 4096), _REFUSED)
    yield Fault("archive-with-a-way-out", _uploads(_members(["../../out"])), _REFUSED)
    yield Fault("archive-that-expands-a-thousandfold", _uploads(_sparse()), _REFUSED)
    yield Fault("archive-of-deep-directories", _uploads(_members(["d/" * 2000 + "f"])), _REFUSED)
    yield Fault("archive-of-names-beyond-any-filesystem", _uploads(_members(["n" * 5000])), _REFUSED)
    yield Fault("archive-that-is-another", _uploads(archive(1 << 20), digest=b"d" * 32), _REFUSED)
    yield Fault("archive-whose-unpacker-is-killed", _unpacker_killed, UNAVAILABLE)
    yield Fault("upload-abandoned", _upload_abandoned, CANCELLED)
    yield Fault("pool-killed-as-a-group", _killed_as_a_group, UNAVAILABLE, Pool.GONE)


_ENDLESS: dict[str, Callable[[Any], Any]] = {
    "c-code-sleeps-with-the-lock": hostile.held_in_c(1000),
    "c-code-spins-with-the-lock": hostile.spins_in_c,
    "function-catches-everything": hostile.catches_everything,
    "function-stops-its-worker": hostile.stops_itself,
}


def _runs(function: Callable[[Any], Any], **options: Any) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        call = scene.call(function, **options)
        call.send()
        return call.finish()

    return happens


def _ended(function: Callable[[Any], Any]) -> Callable[[Scene], grpc.StatusCode]:
    """Return a fault that the pool must end before the table's own deadline for calls."""

    def happens(scene: Scene) -> grpc.StatusCode:
        call = scene.call(function)
        call.send()
        code = call.finish()
        assert "its worker was ended" in call.reply.details
        return code

    return happens


def _cancelled(function: Callable[[Any], Any]) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        call = scene.call(_noted(function, str(scene.notes)))
        call.send()
        scene.worker()
        call.cancel()
        return call.ended()

    return happens


def _noted(function: Callable[[Any], Any], directory: str) -> Callable[[Any], Any]:
    def noted(column: Any) -> Any:
        from pathlib import Path

        Path(directory, "go").touch()
        note_and_wait(directory)
        return function(column)

    return noted


def _uploads(data: bytes, digest: bytes = b"") -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        call = scene.call(well, artifacts={"dir": data}, digests={"dir": digest} if digest else None)
        return call.finish()

    return happens


def _members(names: list[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


def _sparse() -> bytes:
    """Return compressed zeros: 64 MiB in 64 KiB."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo("zeros")
        member.size = 64 << 20
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def _unpacker_killed(scene: Scene) -> grpc.StatusCode:
    """Kill the unpacker while it reads an archive with many members."""
    call = scene.call(noting(scene.notes), artifacts={"dir": _members([f"m{number}" for number in range(20_000)])})
    for process in until("there is an unpacker", lambda: _unpackers(scene)):
        process.kill()
    return call.finish()


def _unpackers(scene: Scene) -> list[psutil.Process]:
    found = []
    for process in scene.pool.members():
        try:
            if any("updraft_server.unpacker" in argument for argument in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _upload_abandoned(scene: Scene) -> grpc.StatusCode:
    call = scene.call(well, artifacts={"dir": archive(8 << 20)})
    call.hold_uploads()
    call.wait_for("artifacts_wanted")
    call.cancel()
    return call.ended()


def _killed_as_a_group(scene: Scene) -> grpc.StatusCode:
    """Kill all processes of the pool at once, as a platform kills a container."""
    call = scene.call(computing(scene.notes))
    call.send()
    scene.worker()
    members = scene.pool.members()
    # Some processes may already have ended, such as a worker whose pool is stopped.
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                act(process)
    return call.ended()
