# SPDX-License-Identifier: Apache-2.0
"""The process that an `updraft-server` is: starts the zygote, the front or both, heals them, and ends them.

It imports neither gRPC nor pyarrow and does nothing with the network, so that nothing but a signal makes it fail.
When it dies, its children end with it; workers whose zygote died become its children and are reaped here, and so do
processes that functions of those workers leave behind, which are ended.
"""

import contextlib
import dataclasses
import enum
import math
import os
import signal
import socket
import sys
import time
from pathlib import Path

from updraft.service.child import Child, describe_exit
from updraft.service.crashes import CRASHES, WINDOW_SECONDS, Crashes
from updraft.service.heartbeat import INTERVAL_SECONDS, LOADING_TURNS, SILENT_TURNS
from updraft.service.parent import stdin_has_ended
from updraft_server.ipc.control import (
    CONTROL_VARIABLE,
    KNOWN_VARIABLE,
    KnownSide,
    introduce,
    packet_pair,
)
from updraft_server.ipc.load import Load
from updraft_server.ipc.settings_handover import (
    ARTIFACTS_VARIABLE,
    NEIGHBOURS_TOKEN_VARIABLE,
    SETTINGS_VARIABLE,
    hand_down,
)
from updraft_server.ipc.worker_records import WorkerRecords
from updraft_server.ipc.zygote_packets import EXIT_IMAGE_BROKEN, EXIT_LAYER_MISSING, ZygoteSettings
from updraft_server.linux.descendants import children, kill_child
from updraft_server.linux.process_control import kill_group
from updraft_server.settings import (
    FrontSettings,
    PoolSettings,
    WorkersSettings,
)
from updraft_server.supervisor.broken_loads import BrokenLoads
from updraft_server.supervisor.children import control_listener, start_zygote
from updraft_server.supervisor.front_call import FrontCall, News
from updraft_server.supervisor.runtime_directory import FRONT_SOCKET
from updraft_server.supervisor.zygote_child import ZygoteChild
from updraft_server.supervisor.zygote_settings import zygote_settings

EXIT_FAILURE = 1
EXIT_REFUSED = 2
"""What was asked for cannot be done as asked; the line before says what to change."""

_ARTIFACTS = "artifacts"
_FRONT = "front"
_ZYGOTE = "zygote"
_SUCCESSOR = "next zygote"
RELOAD = signal.SIGUSR2
# SIGALRM is this process's own, once every INTERVAL_SECONDS.
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
SIGNALS = frozenset({*_ENDING, RELOAD, signal.SIGCHLD, signal.SIGALRM, signal.SIGIO})
_START_UP_SECONDS = 10.0
_DRAIN_MARGIN_SECONDS = 15.0
# A killed process that waits for a disk or a network file system does not end; the pool's own end must not wait for it.
_LAST_DEATHS_SECONDS = 10.0


class Phase(enum.Enum):
    """RUNNING -> DRAINING, by a signal; the end is the front's, or the zygote's where there is no front."""

    RUNNING = "running"
    DRAINING = "draining"


class Supervisor:
    """A child or two, and the signals that say what happens to them."""

    def __init__(
        self,
        *,
        front: FrontSettings | None,
        workers: WorkersSettings | None,
        directory: Path,
        front_directory: Path,
        neighbours_token_file: Path | None = None,
    ) -> None:
        """Supervise a front, a zygote with its workers, or both.

        Args:
            front: What the front is told; None when it runs elsewhere.
            workers: What the zygote is told; None when it runs elsewhere.
            directory: The zygote's files.
            front_directory: The front's files, under the same path for both.
            neighbours_token_file: With what this machine's own users may read metrics and status; None: without.
        """
        self._neighbours_token_file = neighbours_token_file
        self._front_settings = front
        self._socket_path = front_directory / FRONT_SOCKET
        # Workers have working directories of their own.
        self._artifacts_path = front_directory.absolute() / _ARTIFACTS
        self._zygote_settings: ZygoteSettings | None = None
        self._listener: socket.socket | None = None
        self._known: KnownSide
        self._control: socket.socket | None = None
        """Leads to the front; None while it does not live, or has not been reached."""
        self._front_call = FrontCall(self._socket_path)
        self._door: socket.socket | None = None
        """Leads to the zygote."""
        self._successors_door: socket.socket | None = None
        """Leads to a zygote that takes its place once it has loaded the functions."""
        self._generation = 0
        """How often functions were loaded again."""
        self._broken_loads = BrokenLoads()
        if workers is not None:
            self._zygote_settings = zygote_settings(workers, directory, {directory, front_directory})
        if workers is None:
            self._known = KnownSide.made(somebody=self._socket_path.exists())
            self._listener = control_listener(self._socket_path)
        told: PoolSettings | None = front or workers
        assert told is not None, "neither half is to run"
        self._drain_timeout_seconds = told.drain_timeout_seconds
        self._phase = Phase.RUNNING
        self._drain_deadline_seconds = math.inf
        self._children: dict[str, Child] = {}
        self._adopted_workers: set[int] = set()
        """Workers whose zygote has died; its successor says when they end."""
        self._clearing_deadline_seconds: float | None = None
        """Set while the workers' side ends because its front was lost: until then it is waited for."""
        self._front_started_seconds = 0.0
        self._crashes = Crashes()

    def run(self) -> int:
        """Supervise until what runs here has drained or nothing helps any more; the exit status."""
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
        if self._front_settings is None:
            self._reach_front()
        else:
            self._start_front(self._front_settings)
            if self._zygote_settings is not None:
                self._start_zygote(self._zygote_settings)
        try:
            while True:
                status = self._step()
                if status is not None:
                    return status
        finally:
            self._end_children()
            if self._listener is not None:
                # There is no workers' side any more that a successor should know again, or it is lost with this.
                self._socket_path.unlink(missing_ok=True)

    def _step(self) -> int | None:
        # Not sigtimedwait: Python's returns noise when a stop of this process outlasts the wait (SIGSTOP, SIGCONT).
        match signal.sigwait(SIGNALS):
            case signal.SIGALRM:
                self._end_stuck_children()
                self._succeed()
                self._kill_strays()
                self._go_on_once_cleared()
                self._look_for_front()
                if self._starter_has_gone():
                    return self._stop()
                return self._overdue()
            case signal.SIGCHLD:
                return self._reap()
            case signal.SIGIO:
                self._look_for_front()
                return None
            case signal.SIGUSR2:
                self._reload()
                return None
            case _:
                return self._stop()

    def _look_for_front(self) -> None:
        if self._front_settings is None and self._clearing_deadline_seconds is None:
            self._reach_front()

    def _starter_has_gone(self) -> bool:
        follows = self._front_settings is not None and self._front_settings.end_with_stdin
        return follows and self._phase is Phase.RUNNING and stdin_has_ended()

    def _end_stuck_children(self) -> None:
        """Kill a child whose loop does not turn: the end that follows is one like any other."""
        for name, child in self._children.items():
            if child.is_stuck():
                if isinstance(child, ZygoteChild) and (excess := child.excess) is not None:
                    self._broken_loads.exceeded(excess.load, excess.reason)
                    _say(f"the {name} is killed: {excess.load.fault(excess.reason)}")
                else:
                    turns = SILENT_TURNS if child.has_started else LOADING_TURNS
                    _say(f"the {name} has not moved for {turns * INTERVAL_SECONDS:g} seconds and is killed")
                child.kill()
            elif isinstance(child, ZygoteChild) and child.patience:
                _say(f"the {name} is not ready yet: {child.patience}")

    def _stop(self) -> int | None:
        """Ask the front to drain, or else the zygote to wait for the front; a second request does not wait."""
        if self._phase is Phase.DRAINING:
            _say("stopping at once: running exchanges are lost")
            return EXIT_FAILURE
        self._phase = Phase.DRAINING
        self._drain_deadline_seconds = time.monotonic() + self._drain_timeout_seconds + _DRAIN_MARGIN_SECONDS
        draining = self._children.get(_FRONT) or self._children.get(_ZYGOTE)
        if draining is None:
            # Workers that no front has asked for.
            return 0
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
            for name, child in list(self._children.items()):
                if ended == child.pid:
                    child.reaped(code)
                    status = self._ended(name, code)
                    if status is not None:
                        return status
        self._kill_strays()
        self._go_on_once_cleared()
        return None

    def _ended(self, name: str, code: int) -> int | None:
        if name == _FRONT and self._front_settings is not None:
            return self._front_ended(self._front_settings, code)
        assert self._zygote_settings is not None
        if name == _ZYGOTE:
            return self._zygote_ended(self._zygote_settings, code)
        child = self._children.pop(name)
        if name == _SUCCESSOR:
            self._drop_successor()
            if fault := self._broken_loads.ended(_load_of(child), code):
                _say(f"{fault}: another {name} is started without it")
                self._start_successor(self._zygote_settings)
            else:
                _say(f"the {name} {describe_exit(code)} while it loaded the functions: they serve on as they were")
        elif code:
            _say(f"the {name} {describe_exit(code)}")
            self._adopt_workers(self._zygote_settings)
        return None

    def _front_ended(self, settings: FrontSettings, code: int) -> int | None:
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
        if self._zygote_settings is not None:
            self._clear_workers()
        self._start_front(settings)
        return None

    def _zygote_ended(self, settings: ZygoteSettings, code: int) -> int | None:
        load = _load_of(self._children[_ZYGOTE])
        if load is None and code in (EXIT_IMAGE_BROKEN, EXIT_LAYER_MISSING):
            return EXIT_REFUSED
        if self._phase is Phase.DRAINING and _FRONT not in self._children:
            # It was told to end with its last front. -SIGTERM: it had not installed its handler yet.
            return 0 if code in (0, -signal.SIGTERM) else EXIT_FAILURE
        if fault := self._broken_loads.ended(load, code):
            # Not one death of too many: the next zygote gets further.
            _say(f"{fault}: the zygote is started again without it")
        elif self._crashed(f"the zygote {describe_exit(code)}"):
            return EXIT_FAILURE
        self._adopt_workers(settings)
        # The next one loads what is there now.
        self._drop_successor()
        self._start_zygote(settings)
        return None

    def _adopt_workers(self, settings: ZygoteSettings) -> None:
        # Read once, when all of them have just come here: a record that is written later saves nobody.
        self._adopted_workers = WorkerRecords(Path(settings.workers_directory)).living()

    def _crashed(self, what: str) -> bool:
        """Note a death; True when there have been too many to go on."""
        if self._crashes.are_too_many():
            _say(f"{what}, the {CRASHES}th death within {WINDOW_SECONDS:g} seconds: giving up")
            return True
        _say(f"{what}: it is started again")
        return False

    def _start_zygote(self, settings: ZygoteSettings) -> None:
        if self._door is not None:
            self._door.close()
        # What has retired still serves the models of its workers.
        has_retired = bool(self._children.keys() - {_FRONT, _ZYGOTE, _SUCCESSOR})
        self._door, zygotes_end = packet_pair()
        with zygotes_end:
            self._children[_ZYGOTE] = start_zygote(self._as_now(settings, is_successor=has_retired), zygotes_end)
        self._introduce()

    def _as_now(self, settings: ZygoteSettings, *, is_successor: bool) -> ZygoteSettings:
        """The settings of a zygote that is started now."""
        return dataclasses.replace(
            settings,
            generation=self._generation,
            is_successor=is_successor,
            broken_loads=list(self._broken_loads.faults.items()),
        )

    def _reload(self) -> None:
        """Start a zygote that loads the functions as they are now; the one that is there serves until it has."""
        if self._zygote_settings is None:
            _say("functions are loaded by the side of the workers: send the signal there")
        if self._zygote_settings is None or self._phase is Phase.DRAINING or _ZYGOTE not in self._children:
            # A zygote that is about to be started loads them anyway.
            return
        self._drop_successor()
        self._broken_loads.forget()
        self._generation += 1
        self._start_successor(self._zygote_settings)

    def _start_successor(self, settings: ZygoteSettings) -> None:
        if self._phase is Phase.DRAINING:
            return
        try:
            self._successors_door, zygotes_end = packet_pair()
            with zygotes_end:
                self._children[_SUCCESSOR] = start_zygote(self._as_now(settings, is_successor=True), zygotes_end)
        except OSError as error:
            self._drop_successor()
            _say(f"the {_SUCCESSOR} cannot be started: {error.strerror}: the functions serve on as they were")

    def _succeed(self) -> None:
        """Let the front go on with a zygote that has loaded the functions again.

        Its predecessor retires: it forks nothing more, and ends with the last worker that it has forked.
        """
        successor = self._children.get(_SUCCESSOR)
        if self._phase is Phase.DRAINING or successor is None or not successor.has_started:
            return
        retired = self._children.pop(_ZYGOTE)
        self._children[f"retired zygote {retired.pid}"] = retired
        self._children[_ZYGOTE] = self._children.pop(_SUCCESSOR)
        if self._door is not None:
            self._door.close()
        self._door, self._successors_door = self._successors_door, None
        self._introduce()

    def _drop_successor(self) -> None:
        """Have one that has not taken over yet ended, if it lives."""
        if self._successors_door is not None:
            self._successors_door.close()
            self._successors_door = None
        successor = self._children.pop(_SUCCESSOR, None)
        if successor is not None:
            successor.kill()
            successor.forget()

    def _start_front(self, settings: FrontSettings) -> None:
        environment = dict(os.environ)
        environment[SETTINGS_VARIABLE] = hand_down(settings)
        environment[ARTIFACTS_VARIABLE] = str(self._artifacts_path)
        environment[NEIGHBOURS_TOKEN_VARIABLE] = str(self._neighbours_token_file or "")
        self._front_started_seconds = time.monotonic()
        if self._listener is not None:
            environment[CONTROL_VARIABLE] = str(self._listener.fileno())
            environment[KNOWN_VARIABLE] = str(self._known.descriptor)
            inherited = [self._listener.fileno(), self._known.descriptor]
            self._children[_FRONT] = Child("updraft_server.front.process", environment, inherited)
            return
        self._forget_front()
        self._control, fronts_end = packet_pair()
        with fronts_end:
            environment[CONTROL_VARIABLE] = str(fronts_end.fileno())
            self._children[_FRONT] = Child("updraft_server.front.process", environment, [fronts_end.fileno()])
        self._introduce()

    def _introduce(self) -> None:
        """Bring the front and the zygote together, as soon as both are there."""
        if self._control is not None and self._door is not None:
            front = self._children.get(_FRONT)
            introduce(self._door, self._control, front.pid if front is not None else 0)

    def _forget_front(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def _reach_front(self) -> None:
        """Connect to the front of another supervisor, or to its successor, before any zygote runs without one."""
        match self._front_call.look():
            case News.LOST:
                _say("the front has gone away")
                self._control = None
                self._kill_orphans()
                if self._phase is not Phase.DRAINING:
                    self._clear_workers()
                    return
        if self._phase is Phase.DRAINING or self._front_call.control is not None:
            return
        match self._front_call.call():
            case News.TAKEN:
                self._control = self._front_call.control
                if _ZYGOTE in self._children:
                    self._introduce()
                elif self._zygote_settings is not None:
                    self._start_zygote(self._zygote_settings)
            case News.MISSING:
                _say(f"the front cannot be reached at {self._socket_path}: trying again")

    def _clear_workers(self) -> None:
        """End everything but the front: what user code had a hand in meets no second front."""
        self._clearing_deadline_seconds = time.monotonic() + _LAST_DEATHS_SECONDS
        if self._door is not None:
            self._door.close()
            self._door = None
        self._drop_successor()
        # No crash of their own: what is reaped is nobody's child by name.
        for name in self._children.keys() - {_FRONT}:
            self._children.pop(name).forget()
        self._kill_strays()

    def _go_on_once_cleared(self) -> None:
        """Start anew when the workers' side has ended, or does not although it was killed."""
        if self._clearing_deadline_seconds is None:
            return
        left = set(children()) - {child.pid for child in self._children.values()}
        if left and time.monotonic() < self._clearing_deadline_seconds:
            return
        if left:
            _say(f"the processes {sorted(left)} do not end, although they were killed: going on without them")
        self._clearing_deadline_seconds = None
        if self._front_settings is None:
            self._reach_front()
        elif self._zygote_settings is not None:
            self._start_zygote(self._zygote_settings)

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
        if not found or self._a_zygote_has_ended():
            # Looked at last: of a zygote that ended meanwhile, living workers are among those found. Its end is next.
            return
        for pid in found:
            kill_group(pid)
            # A daemon is in a group whose leader is gone.
            kill_child(pid)

    def _a_zygote_has_ended(self) -> bool:
        zygotes = [child for name, child in self._children.items() if name != _FRONT]
        return any(_ended_of(os.P_PID, zygote.pid) is not None for zygote in zygotes)

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
            signal.sigwait(SIGNALS)
            while (ended := _next_ended()) is not None:
                os.waitpid(ended, 0)
        if left:
            _say(f"the processes {left} do not end, although they were killed")


def _load_of(child: Child) -> Load | None:
    """What a zygote was loading when it was looked at last, or when it ended."""
    return child.load if isinstance(child, ZygoteChild) else None


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
