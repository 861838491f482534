# SPDX-License-Identifier: Apache-2.0
"""Signals to each process of a pool, in each phase of an exchange that leads to a different outcome."""

from __future__ import annotations

import contextlib
import io
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil

from tests.faults.table.call import Call
from tests.faults.table.fault import ABORTED, NO_CALL, OK, UNAVAILABLE, Fault, Pool
from tests.faults.table.functions import computing, loading, noting, replying, well
from tests.faults.table.scene import Scene
from tests.support.flight import pool_status
from tests.support.waiting import until

REPLY_BYTES = 32 << 20
# Longer than the pause between two of the pool's checks of its processes, shorter than the time after which the pool
# replaces a stuck process.
_STOPPED_SECONDS = 1.0


@dataclass
class Open:
    """Exchange that a phase has opened, if any."""

    call: Call | None = None
    worker: psutil.Process | None = None
    others: list[Call] = field(default_factory=list)


def archive(size_bytes: int) -> bytes:
    """Return a tar archive with one file of this size."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("data")
        member.size = size_bytes
        tar.addfile(member, io.BytesIO(b"x" * size_bytes))
    return buffer.getvalue()


def _idle(_: Scene) -> Open:
    return Open()


def _loading(scene: Scene) -> Open:
    call = scene.call(loading(scene.notes))
    call.send()
    return Open(call, scene.worker())


def _before_the_first_batch(scene: Scene) -> Open:
    scene.go()
    call = scene.call(loading(scene.notes))
    call.wait_for("admitted")
    return Open(call, scene.worker())


def _computing(scene: Scene) -> Open:
    call = scene.call(computing(scene.notes))
    call.send()
    return Open(call, scene.worker())


def _between_batches(scene: Scene) -> Open:
    call = scene.call(noting(scene.notes))
    call.send()
    call.wait_for("sequence")
    return Open(call, scene.worker())


def _replying(scene: Scene) -> Open:
    call = scene.call(replying(scene.notes, REPLY_BYTES))
    call.wait_for("admitted")
    call.stop_reading()
    call.send()
    return Open(call, scene.worker())


def _uploading(scene: Scene) -> Open:
    call = scene.call(noting(scene.notes), artifacts={"dir": archive(4 << 20)})
    call.hold_uploads()
    call.wait_for("artifacts_wanted")
    return Open(call)


def _waiting(scene: Scene) -> Open:
    directories = [scene.notes / "first", scene.notes / "second"]
    others = []
    for directory in directories:
        directory.mkdir()
        others.append(scene.call(computing(directory)))
        others[-1].send()
        scene.worker(directory)
    call = scene.call(noting(scene.notes))
    call.send()
    until("the exchange waits", lambda: pool_status(scene.pool.tcp_address).exchanges_waiting == 1)
    return Open(call, scene.worker(directories[0]), others)


def _draining(scene: Scene) -> Open:
    found = _computing(scene)
    scene.pool.request_drain()

    until("the pool drains", lambda: scene.call(well).finish() == grpc.StatusCode.UNAVAILABLE)
    return found


PHASES: dict[str, Callable[[Scene], Open]] = {
    "idle": _idle,
    "waiting": _waiting,
    "uploading": _uploading,
    "loading": _loading,
    "before_the_first_batch": _before_the_first_batch,
    "computing": _computing,
    "between_batches": _between_batches,
    "replying": _replying,
    "draining": _draining,
}
_DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
_VICTIMS = ("worker", "zygote", "front", "supervisor")
_FEW_PHASES = ("idle", "computing", "draining")
SIGNALS: dict[signal.Signals, tuple[str, ...]] = {
    signal.SIGKILL: tuple(PHASES),
    signal.SIGSTOP: ("idle", "waiting", "loading", "computing", "replying", "draining"),
    signal.SIGTERM: _FEW_PHASES,
    signal.SIGSEGV: ("idle", "computing"),
    signal.SIGABRT: ("loading", "computing"),
}


def rows() -> Iterator[Fault]:
    """Yield a fault for each victim, phase and signal."""
    for number, phases in SIGNALS.items():
        for phase in phases:
            for victim in _VICTIMS:
                client, pool = _expected(victim, phase, number)
                name = f"{victim}-{phase}-{number.name}"
                yield Fault(name, _signalled(victim, phase, number), client, pool)


def _expected(victim: str, phase: str, number: signal.Signals) -> tuple[frozenset[grpc.StatusCode], Pool]:
    draining = phase == "draining"
    deadly = number in _DEADLY
    # SIGTERM to the supervisor or the front drains the pool, which finishes running exchanges.
    ends = victim in ("supervisor", "front") and number == signal.SIGTERM
    ends = ends or draining or (victim == "supervisor" and deadly)
    pool = Pool.GONE if ends else Pool.WHOLE
    if phase == "idle":
        return NO_CALL, pool
    if deadly and victim in ("front", "supervisor"):
        return UNAVAILABLE, pool
    # A second SIGTERM makes a supervisor end without waiting for running exchanges.
    if draining and victim == "supervisor" and number == signal.SIGTERM:
        return UNAVAILABLE, pool
    # An exchange that waits has no worker yet, and one that uploads does not depend on its worker: it receives another.
    if deadly and victim == "worker" and phase not in ("waiting", "uploading"):
        return ABORTED, pool
    if victim == "worker" and number == signal.SIGTERM:
        return ABORTED, pool
    return OK, pool


def _signalled(victim: str, phase: str, number: signal.Signals) -> Callable[[Scene], grpc.StatusCode | None]:
    def happens(scene: Scene) -> grpc.StatusCode | None:
        found = PHASES[phase](scene)
        process = _process(scene, victim, found)
        process.send_signal(number)
        if number == signal.SIGSTOP:
            # The process stays stopped for this long.
            time.sleep(_STOPPED_SECONDS)
            process.resume()
        elif number in _DEADLY:
            scene.victims.append(process)
            # The pool stops a worker without an exchange, so a signal other than SIGKILL ends this worker only when it
            # continues.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
            until("the victim has ended", lambda: _ended(process))
        scene.go()
        for other, directory in zip(found.others, ("first", "second"), strict=False):
            Path(scene.notes, directory, "go").touch()
            other.finish()
        return found.call.finish() if found.call is not None else None

    return happens


def _process(scene: Scene, victim: str, found: Open) -> psutil.Process:
    if victim == "worker":
        return found.worker or scene.pool.workers()[0]
    members = {"zygote": scene.pool.zygote(), "front": scene.pool.front(), "supervisor": psutil.Process(scene.pool.pid)}
    process = members[victim]
    assert process is not None, victim
    return process


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
