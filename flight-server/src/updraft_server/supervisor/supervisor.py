# SPDX-License-Identifier: Apache-2.0
"""The process that an `updraft-server` is: starts the zygote, the front or both, heals them, and ends them.

It imports neither gRPC nor pyarrow and does nothing with the network, so that nothing but a signal makes it fail.
When it dies, its children end with it; workers whose zygote died become its children and are reaped here, and so do
processes that functions of those workers leave behind, which are ended.
"""

import contextlib
import enum
import math
import os
import signal
import socket
import time
from pathlib import Path

from updraft.service.child import Child, describe_exit
from updraft.service.crashes import CRASHES, WINDOW_SECONDS, Crashes
from updraft.service.heartbeat import INTERVAL_SECONDS, LOADING_TURNS, SILENT_TURNS
from updraft.service.parent import stdin_has_ended
from updraft_server.ipc.control import CONTROL_VARIABLE, KNOWN_VARIABLE, KnownSide, introduce, packet_pair
from updraft_server.ipc.settings_handover import (
    ARTIFACTS_VARIABLE,
    NEIGHBOURS_TOKEN_VARIABLE,
    SETTINGS_VARIABLE,
    hand_down,
)
from updraft_server.ipc.worker_records import WorkerRecords
from updraft_server.ipc.zygote_packets import EXIT_IMAGE_BROKEN, EXIT_LAYER_MISSING
from updraft_server.linux.descendants import children
from updraft_server.settings import FrontSettings, PoolSettings, WorkersSettings
from updraft_server.supervisor.children import control_listener
from updraft_server.supervisor.front_call import FrontCall, News
from updraft_server.supervisor.reaping import has_ended, kill, next_ended, reap
from updraft_server.supervisor.runtime_directory import FRONT_SOCKET
from updraft_server.supervisor.stderr import say
from updraft_server.supervisor.zygote_child import ZygoteChild
from updraft_server.supervisor.zygote_settings import zygote_settings
from updraft_server.supervisor.zygotes import FRONT, ZYGOTE, Zygotes

EXIT_FAILURE = 1
EXIT_REFUSED = 2
"""What was asked for cannot be done as asked; the line before says what to change."""

_ARTIFACTS = "artifacts"
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
        self._listener: socket.socket | None = None
        self._known: KnownSide
        self._control: socket.socket | None = None
        """Leads to the front; None while it does not live, or has not been reached."""
        self._front_call = FrontCall(self._socket_path)
        self._children: dict[str, Child] = {}
        self._zygotes: Zygotes | None = None
        if workers is not None:
            self._zygotes = Zygotes(zygote_settings(workers, directory, {directory, front_directory}), self._children)
        if workers is None:
            self._known = KnownSide.made(somebody=self._socket_path.exists())
            self._listener = control_listener(self._socket_path)
        told: PoolSettings | None = front or workers
        assert told is not None, "neither half is to run"
        self._drain_timeout_seconds = told.drain_timeout_seconds
        self._phase = Phase.RUNNING
        self._drain_deadline_seconds = math.inf
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
            if self._zygotes is not None:
                self._start_zygote(self._zygotes)
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
                if self._zygotes is None or not self._zygotes.kill_excessive(name, child):
                    turns = SILENT_TURNS if child.has_started else LOADING_TURNS
                    say(f"the {name} has not reported for {turns * INTERVAL_SECONDS:g} seconds: killing it")
                    child.kill()
            elif isinstance(child, ZygoteChild) and child.patience:
                say(f"the {name} is not ready yet: {child.patience}")

    def _stop(self) -> int | None:
        """Ask the front to drain, or else the zygote to wait for the front; a second request does not wait."""
        if self._phase is Phase.DRAINING:
            say("stopping at once: running exchanges are lost")
            return EXIT_FAILURE
        self._phase = Phase.DRAINING
        self._drain_deadline_seconds = time.monotonic() + self._drain_timeout_seconds + _DRAIN_MARGIN_SECONDS
        draining = self._children.get(FRONT) or self._children.get(ZYGOTE)
        if draining is None:
            # Workers that no front has asked for.
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(draining.pid, signal.SIGTERM)
        return None

    def _overdue(self) -> int | None:
        if time.monotonic() < self._drain_deadline_seconds:
            return None
        say("the front did not drain in time: killing what is left")
        return EXIT_FAILURE

    def _reap(self) -> int | None:
        while (ended := next_ended()) is not None:
            code = reap(ended)
            self._adopted_workers.discard(ended)
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
        if name == FRONT and self._front_settings is not None:
            return self._front_ended(self._front_settings, code)
        assert self._zygotes is not None
        if name == ZYGOTE:
            return self._zygote_ended(self._zygotes, code)
        if self._zygotes.other_ended(name, code, is_wanted=self._phase is not Phase.DRAINING):
            self._adopt_workers(self._zygotes)
        return None

    def _front_ended(self, settings: FrontSettings, code: int) -> int | None:
        self._kill_orphans()
        # -SIGTERM in a drain: it had not installed its handler yet, so it has served nobody.
        if code == 0 or (self._phase is Phase.DRAINING and code == -signal.SIGTERM):
            return 0
        if self._phase is Phase.DRAINING:
            say(f"the front {describe_exit(code)} while it drained")
            return EXIT_FAILURE
        young = time.monotonic() - self._front_started_seconds < _START_UP_SECONDS
        if code > 0 and young:
            return EXIT_REFUSED
        if self._crashed(f"the front {describe_exit(code)}"):
            return EXIT_FAILURE
        if self._zygotes is not None:
            self._clear_workers(self._zygotes)
        self._start_front(settings)
        return None

    def _zygote_ended(self, zygotes: Zygotes, code: int) -> int | None:
        if code in (EXIT_IMAGE_BROKEN, EXIT_LAYER_MISSING) and not zygotes.is_running_code:
            return EXIT_REFUSED
        if self._phase is Phase.DRAINING and FRONT not in self._children:
            # It was told to end with its last front. -SIGTERM: it had not installed its handler yet.
            return 0 if code in (0, -signal.SIGTERM) else EXIT_FAILURE
        if fault := zygotes.ended(code):
            # Not one death of too many: the next zygote gets further.
            say(f"{fault}: restarting the zygote without it")
        elif self._crashed(f"the zygote {describe_exit(code)}"):
            return EXIT_FAILURE
        self._adopt_workers(zygotes)
        self._start_zygote(zygotes)
        return None

    def _adopt_workers(self, zygotes: Zygotes) -> None:
        # Read once, when all of them have just come here: a record that is written later saves nobody.
        self._adopted_workers = WorkerRecords(Path(zygotes.settings.workers_directory)).living()

    def _crashed(self, what: str) -> bool:
        """Note a death; True when there have been too many to go on."""
        if self._crashes.are_too_many():
            say(f"{what}, the {CRASHES}th death within {WINDOW_SECONDS:g} seconds: giving up")
            return True
        say(f"{what}: restarting it")
        return False

    def _start_zygote(self, zygotes: Zygotes) -> None:
        zygotes.start()
        self._introduce()

    def _reload(self) -> None:
        if self._zygotes is None:
            say("the workers' side loads the functions: send the signal there")
        elif self._phase is Phase.RUNNING and ZYGOTE in self._children:
            # A zygote that is about to be started loads them anyway.
            self._zygotes.reload()

    def _succeed(self) -> None:
        if self._zygotes is not None and self._phase is Phase.RUNNING and self._zygotes.succeed():
            self._introduce()

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
            self._children[FRONT] = Child("updraft_server.front.process", environment, inherited)
            return
        self._forget_front()
        self._control, fronts_end = packet_pair()
        with fronts_end:
            environment[CONTROL_VARIABLE] = str(fronts_end.fileno())
            self._children[FRONT] = Child("updraft_server.front.process", environment, [fronts_end.fileno()])
        self._introduce()

    def _introduce(self) -> None:
        """Bring the front and the zygote together, as soon as both are there."""
        door = self._zygotes.door if self._zygotes is not None else None
        if self._control is not None and door is not None:
            front = self._children.get(FRONT)
            introduce(door, self._control, front.pid if front is not None else 0)

    def _forget_front(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def _reach_front(self) -> None:
        """Connect to the front of another supervisor, or to its successor, before any zygote runs without one."""
        match self._front_call.look():
            case News.LOST:
                say("the front has gone away")
                self._control = None
                self._kill_orphans()
                if self._phase is not Phase.DRAINING and self._zygotes is not None:
                    self._clear_workers(self._zygotes)
                    return
        if self._phase is Phase.DRAINING or self._front_call.control is not None:
            return
        match self._front_call.call():
            case News.TAKEN:
                self._control = self._front_call.control
                if ZYGOTE in self._children:
                    self._introduce()
                elif self._zygotes is not None:
                    self._start_zygote(self._zygotes)
            case News.MISSING:
                say(f"the front cannot be reached at {self._socket_path}: trying again")

    def _clear_workers(self, zygotes: Zygotes) -> None:
        """End everything but the front: what user code had a hand in meets no second front."""
        self._clearing_deadline_seconds = time.monotonic() + _LAST_DEATHS_SECONDS
        zygotes.close_door()
        zygotes.drop_successor()
        # No crash of their own: what is reaped is nobody's child by name.
        for name in self._children.keys() - {FRONT}:
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
            say(f"the processes {sorted(left)} have not ended, although they were killed: continuing without them")
        self._clearing_deadline_seconds = None
        if self._front_settings is None:
            self._reach_front()
        elif self._zygotes is not None:
            self._start_zygote(self._zygotes)

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
        kill(found)

    def _a_zygote_has_ended(self) -> bool:
        zygotes = [child for name, child in self._children.items() if name != FRONT]
        return any(has_ended(zygote.pid) for zygote in zygotes)

    def _end_children(self) -> None:
        for child in self._children.values():
            child.end()
        give_up_seconds = time.monotonic() + _LAST_DEATHS_SECONDS
        # Again and again: what a killed process had started becomes a child of this one.
        while (left := children()) and time.monotonic() < give_up_seconds:
            kill(left)
            signal.sigwait(SIGNALS)
            while (ended := next_ended()) is not None:
                os.waitpid(ended, 0)
        if left:
            say(f"the processes {left} have not ended, although they were killed")
