# SPDX-License-Identifier: Apache-2.0
"""The process that `updraft-server serve` is: starts the zygote, the front or both, heals them, and ends them.

It imports neither gRPC nor pyarrow and does nothing with the network, so that nothing but a signal makes it fail.
When it dies, its children end with it; workers whose zygote died become its children and are reaped here, and so do
processes that functions of those workers leave behind, which are ended.
"""

import collections
import contextlib
import enum
import math
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from updraft.service.lossy_streams import protect_standard_streams
from updraft_server.ipc.heartbeat import INTERVAL_SECONDS, SILENT_TURNS
from updraft_server.ipc.settings_handover import (
    ARTIFACTS_VARIABLE,
    SETTINGS_VARIABLE,
    ZYGOTE_SOCKET_VARIABLE,
    hand_down,
)
from updraft_server.ipc.worker_records import WorkerRecords
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.zygote_packets import EXIT_IMAGE_BROKEN, EXIT_LAYER_MISSING, ZygoteSettings
from updraft_server.linux.descendants import children, kill_child
from updraft_server.linux.hostile_trees import empty_directory
from updraft_server.linux.process_control import adopt_orphans, describe_exit, hide_memory, kill_group
from updraft_server.sandbox_layers import RESTRICTED
from updraft_server.settings import ServeSettings
from updraft_server.supervisor.children import Child, start_zygote, zygote_listener
from updraft_server.supervisor.runtime_directory import ZYGOTE_SOCKET, claimed

EXIT_FAILURE = 1
EXIT_REFUSED = 2
"""What was asked for cannot be done as asked; the line before says what to change."""

_ARTIFACTS = "artifacts"
_SCRATCH = "scratch"
_FRONT = "front"
_ZYGOTE = "zygote"
# SIGALRM is this process's own, once every INTERVAL_SECONDS.
_SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM})
_CRASHES = 5
_CRASH_WINDOW_SECONDS = 10.0
_START_UP_SECONDS = 10.0
_DRAIN_MARGIN_SECONDS = 15.0
# A killed process that waits for a disk or a network file system does not end; the pool's own end must not wait for it.
_LAST_DEATHS_SECONDS = 10.0
# What is left then is removed when a pool starts here again.
_CLEARING_SECONDS = 10.0


class Phase(enum.Enum):
    """RUNNING -> DRAINING, by a signal; the end is the front's, or the zygote's where there is no front."""

    RUNNING = "running"
    DRAINING = "draining"


class Supervisor:
    """A child or two, and the signals that say what happens to them."""

    def __init__(self, settings: ServeSettings, directory: Path) -> None:
        self._settings = settings
        self._socket_path = directory / ZYGOTE_SOCKET
        # Workers have working directories of their own.
        self._artifacts_path = directory.absolute() / _ARTIFACTS
        self._zygote_settings: ZygoteSettings
        self._listener: socket.socket
        if settings.run != "front":
            self._zygote_settings = _zygote_settings(settings, directory)
            self._listener = zygote_listener(self._socket_path)
        self._phase = Phase.RUNNING
        self._drain_deadline_seconds = math.inf
        self._children: dict[str, Child] = {}
        self._adopted_workers: set[int] = set()
        """Workers whose zygote has died; its successor says when they end."""
        self._front_started_seconds = 0.0
        self._crashes: collections.deque[float] = collections.deque(maxlen=_CRASHES)

    def run(self) -> int:
        """Supervise until what runs here has drained or nothing helps any more; the exit status."""
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
        if self._settings.run != "front":
            self._start_zygote()
        if self._settings.run != "workers":
            self._start_front()
        try:
            while True:
                status = self._step()
                if status is not None:
                    return status
        finally:
            self._end_children()

    def _step(self) -> int | None:
        # Not sigtimedwait: Python's returns noise when a stop of this process outlasts the wait (SIGSTOP, SIGCONT).
        match signal.sigwait(_SIGNALS):
            case signal.SIGALRM:
                self._end_stuck_children()
                self._kill_strays()
                return self._overdue()
            case signal.SIGCHLD:
                return self._reap()
            case _:
                return self._stop()

    def _end_stuck_children(self) -> None:
        """Kill a child whose loop does not turn: the end that follows is one like any other."""
        for name, child in self._children.items():
            if child.is_stuck():
                _say(f"the {name} has not moved for {SILENT_TURNS * INTERVAL_SECONDS:g} seconds and is killed")
                child.kill()

    def _stop(self) -> int | None:
        """Ask the front to drain, or else the zygote to wait for the front; a second request does not wait."""
        if self._phase is Phase.DRAINING:
            _say("stopping at once: running exchanges are lost")
            return EXIT_FAILURE
        self._phase = Phase.DRAINING
        self._drain_deadline_seconds = time.monotonic() + self._settings.drain_timeout_seconds + _DRAIN_MARGIN_SECONDS
        draining = self._children.get(_FRONT) or self._children[_ZYGOTE]
        with contextlib.suppress(ProcessLookupError):
            os.kill(draining.pid, signal.SIGTERM)
        return None

    def _overdue(self) -> int | None:
        if time.monotonic() < self._drain_deadline_seconds:
            return None
        _say("the front did not drain in time: what is left is killed")
        return EXIT_FAILURE

    def _reap(self) -> int | None:
        while (ended := _next_ended()) is not None:
            # Not reaped yet, so the number still names its own group.
            kill_group(ended)
            _, wait_status = os.waitpid(ended, 0)
            self._adopted_workers.discard(ended)
            code = os.waitstatus_to_exitcode(wait_status)
            for name, child in self._children.items():
                if ended == child.pid:
                    child.reaped(code)
                    status = self._front_ended(code) if name == _FRONT else self._zygote_ended(code)
                    if status is not None:
                        return status
        self._kill_strays()
        return None

    def _front_ended(self, code: int) -> int | None:
        self._kill_orphans()
        # -SIGTERM in a drain: it had not installed its handler yet, so it has served nobody.
        if code == 0 or (self._phase is Phase.DRAINING and code == -signal.SIGTERM):
            return 0
        if self._phase is Phase.DRAINING:
            _say(f"the front {describe_exit(code)} while it drained")
            return EXIT_FAILURE
        young = time.monotonic() - self._front_started_seconds < _START_UP_SECONDS
        if code > 0 and young:
            return EXIT_REFUSED
        if self._crashed(f"the front {describe_exit(code)}"):
            return EXIT_FAILURE
        self._start_front()
        return None

    def _zygote_ended(self, code: int) -> int | None:
        if code in (EXIT_IMAGE_BROKEN, EXIT_LAYER_MISSING):
            return EXIT_REFUSED
        if self._phase is Phase.DRAINING and _FRONT not in self._children:
            # It was told to end with its last front. -SIGTERM: it had not installed its handler yet.
            return 0 if code in (0, -signal.SIGTERM) else EXIT_FAILURE
        if self._crashed(f"the zygote {describe_exit(code)}"):
            return EXIT_FAILURE
        # Read once, when all of them have just come here: a record that is written later saves nobody.
        self._adopted_workers = WorkerRecords(Path(self._zygote_settings.workers_directory)).living()
        self._start_zygote()
        return None

    def _crashed(self, what: str) -> bool:
        """Note a death; True when there have been too many to go on."""
        now = time.monotonic()
        self._crashes.append(now)
        if len(self._crashes) == _CRASHES and now - self._crashes[0] < _CRASH_WINDOW_SECONDS:
            _say(f"{what}, the {_CRASHES}th death within {_CRASH_WINDOW_SECONDS:g} seconds: giving up")
            return True
        _say(f"{what}: it is started again")
        return False

    def _start_zygote(self) -> None:
        self._children[_ZYGOTE] = start_zygote(self._zygote_settings, self._listener)

    def _start_front(self) -> None:
        environment = dict(os.environ)
        environment[SETTINGS_VARIABLE] = hand_down(self._settings)
        environment[ZYGOTE_SOCKET_VARIABLE] = str(self._socket_path)
        environment[ARTIFACTS_VARIABLE] = str(self._artifacts_path)
        self._front_started_seconds = time.monotonic()
        self._children[_FRONT] = Child("updraft_server.front.process", environment)

    def _kill_orphans(self) -> None:
        """End workers that outlived their zygote and now their front: nobody is left to want their results."""
        self._adopted_workers.clear()
        self._kill_strays()

    def _kill_strays(self) -> None:
        """End what functions of adopted workers, or a dead zygote, have left behind.

        Its end brings up what it had started itself, and a SIGCHLD, with which this is called again.
        """
        known = self._adopted_workers | {child.pid for child in self._children.values()}
        found = [pid for pid in children() if pid not in known]
        if not found or self._zygote_has_ended():
            # Looked at last: of a zygote that ended meanwhile, living workers are among those found. Its end is next.
            return
        for pid in found:
            kill_group(pid)
            # A daemon is in a group whose leader is gone.
            kill_child(pid)

    def _zygote_has_ended(self) -> bool:
        zygote = self._children.get(_ZYGOTE)
        return zygote is not None and _ended_of(os.P_PID, zygote.pid) is not None

    def _end_children(self) -> None:
        for child in self._children.values():
            child.end()
        give_up_seconds = time.monotonic() + _LAST_DEATHS_SECONDS
        # Again and again: what a killed process had started becomes a child of this one.
        while (left := children()) and time.monotonic() < give_up_seconds:
            for pid in left:
                kill_group(pid)
                # A daemon is in a group whose leader is gone.
                kill_child(pid)
            signal.sigwait(_SIGNALS)
            while (ended := _next_ended()) is not None:
                os.waitpid(ended, 0)
        if left:
            _say(f"the processes {left} do not end, although they were killed")


def _zygote_settings(settings: ServeSettings, directory: Path) -> ZygoteSettings:
    """What the zygote is to load and its workers to obey, and the directories that they need."""
    directory = directory.absolute()
    files = directory / "files"
    files.mkdir(mode=0o500, exist_ok=True)
    workers = directory / "workers"
    # What a pool that ran here before has left is of no use: its workers died with it.
    shutil.rmtree(workers, ignore_errors=True)
    workers.mkdir(mode=0o700)
    scratch = directory / _SCRATCH
    scratch.mkdir(mode=0o700, exist_ok=True)
    return ZygoteSettings(
        function_modules=settings.functions,
        files_directory=str(files),
        workers_directory=str(workers),
        scratch_directory=str(scratch),
        restricted=settings.profile == RESTRICTED,
        # Nobody runs with less than the profile says.
        required_layers=[*settings.require, *([RESTRICTED] if settings.profile == RESTRICTED else [])],
        worker=WorkerSettings(
            allow_session_functions=settings.allow_session_functions,
            max_batch_bytes=settings.max_message_bytes,
            # The front lets a payload and a schema be as large as a message each; what it adds itself is bounded too.
            max_command_bytes=settings.max_message_bytes * 8,
            # The rest of a message is for the reply's metadata and Arrow's own header.
            max_reply_batch_bytes=settings.max_message_bytes * 15 // 16,
            max_exchanges=settings.max_exchanges_per_worker,
            max_file_bytes=settings.worker_file_bytes,
            max_descriptors=settings.worker_descriptors,
            hidden_paths=(str(directory), *settings.secret_paths),
            readable_paths=(str(files),),
            writable_paths=settings.writable_paths,
        ),
    )


def supervise(settings: ServeSettings) -> int:
    """Run a pool or a half of it until it is told to stop; the exit status of `updraft-server serve`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    # Before the memory is hidden, and /proc/self with it. Children inherit the descriptors.
    protect_standard_streams()
    adopt_orphans()
    hide_memory()
    with contextlib.ExitStack() as stack:
        directory = settings.runtime_directory
        if directory is None:
            directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="updraft-", ignore_cleanup_errors=True))
            )
        halves = ("front", "workers") if settings.run == "both" else (settings.run,)
        stack.enter_context(claimed(directory, halves))
        if settings.run != "front":
            stack.callback(_clear, directory / _SCRATCH)
        return Supervisor(settings, directory).run()


def _clear(scratch: Path) -> None:
    """Remove what functions have left; its processes have ended."""
    with contextlib.suppress(OSError):
        if not empty_directory(str(scratch), within_seconds=_CLEARING_SECONDS):
            _say(f"something is left in {scratch}")


def _next_ended() -> int | None:
    """A child that has ended, still to be reaped."""
    return _ended_of(os.P_ALL, 0)


def _ended_of(kind: int, which: int) -> int | None:
    try:
        ended = os.waitid(kind, which, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return ended.si_pid if ended is not None else None


def _say(what: str) -> None:
    sys.stderr.write(f"updraft-server: {what}\n")
