# SPDX-License-Identifier: Apache-2.0
"""Supervisor in an `updraft-server` process: it starts children, replaces children that die, and finally ends them all.

`programs` contains the three supervisors: of a front, of workers, and of both. A supervisor imports neither gRPC nor
pyarrow and does not use the network, so that only a signal can make it fail. When a supervisor ends, its children end
too. If a zygote dies, its workers become children of the supervisor, which reaps them. Processes that functions of
those workers leave behind also become children of the supervisor, which kills them.
"""

import contextlib
import enum
import math
import os
import signal
import time
from abc import ABC, abstractmethod

from updraft.service.child import CRASHES, WINDOW_SECONDS, Child, Crashes
from updraft.service.heartbeat import INTERVAL_SECONDS, LOADING_TURNS, SILENT_TURNS
from updraft_server.linux.descendants import children, has_ended, kill, next_ended, reap
from updraft_server.supervisor.stderr import say
from updraft_server.supervisor.zygotes import FRONT, ZYGOTE

EXIT_FAILURE = 1
EXIT_REFUSED = 2
"""Exit status of a program that cannot run as configured; the line that the program printed says what to change."""

RELOAD = signal.SIGUSR2
# SIGALRM comes from this process's own timer, every INTERVAL_SECONDS.
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
SIGNALS = frozenset({*_ENDING, RELOAD, signal.SIGCHLD, signal.SIGALRM, signal.SIGIO})
_DRAIN_MARGIN_SECONDS = 15.0
# Maximum time to wait for killed processes to end. A process that waits for a disk or a network file system may never
# end, and must not delay the end of the pool.
LAST_DEATHS_SECONDS = 10.0


class Phase(enum.Enum):
    """Phase of a program. A signal starts DRAINING. A draining program ends with its front, or else with its zygote."""

    RUNNING = "running"
    DRAINING = "draining"


class Supervisor(ABC):
    """Supervisor of the children of one program. Signals make the program drain, reload functions or reap children."""

    def __init__(self, drain_timeout_seconds: float) -> None:
        self._children: dict[str, Child] = {}
        """Children by name: FRONT, ZYGOTE, and the names of further zygotes (`Zygotes`)."""
        self._adopted_workers: set[int] = set()
        """Workers whose zygote has died; the next zygote reports to the front when they end."""
        self._phase = Phase.RUNNING
        self._drain_timeout_seconds = drain_timeout_seconds
        self._drain_deadline_seconds = math.inf
        self._crashes = Crashes()

    @abstractmethod
    def _start(self) -> None:
        """Start the children, or begin to look for a front that needs them."""

    @abstractmethod
    def _ended(self, name: str, code: int) -> int | None:
        """Handle the end of a child; returns the program's exit status, or None if the program continues."""

    @abstractmethod
    def _reload(self) -> None:
        """Load the functions again."""

    @abstractmethod
    def _advance(self) -> None:
        """If a front has connected or processes have ended, continue the work that waited for this."""

    def run(self) -> int:
        """Supervise until the program has drained or has to give up; returns its exit status."""
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
        self._start()
        try:
            while True:
                status = self._step()
                if status is not None:
                    return status
        finally:
            self._end_children()

    def _step(self) -> int | None:
        # Do not use sigtimedwait: Python's version returns garbage if this process is stopped (SIGSTOP, SIGCONT) for
        # longer than the timeout.
        match signal.sigwait(SIGNALS):
            case signal.SIGALRM:
                self._end_stuck_children()
                self._tick()
                return self._stop() if self._starter_has_gone() else self._overdue()
            case signal.SIGCHLD:
                return self._reap()
            case signal.SIGIO:
                self._advance()
                return None
            case signal.SIGUSR2:
                self._reload()
                return None
            case _:
                return self._stop()

    def _tick(self) -> None:
        """Do what is due every INTERVAL_SECONDS."""
        self._kill_leftovers()
        self._advance()

    def _starter_has_gone(self) -> bool:
        """Return whether this process is configured to end with its starter, and the starter has ended."""
        return False

    def _end_stuck_children(self) -> None:
        """Kill each stuck child. The supervisor then handles the child's end like the end of any other child."""
        for name, child in self._children.items():
            if child.is_stuck():
                self._kill_stuck(name, child)

    def _kill_stuck(self, name: str, child: Child) -> None:
        turns = SILENT_TURNS if child.has_started else LOADING_TURNS
        say(f"the {name} has not reported for {turns * INTERVAL_SECONDS:g} seconds: killing it")
        child.kill()

    def _stop(self) -> int | None:
        """Ask the front to drain; a second call ends the program.

        If the front runs elsewhere, ask the zygote to end after that front.
        """
        if self._phase is Phase.DRAINING:
            say("stopping at once: running exchanges are lost")
            return EXIT_FAILURE
        self._phase = Phase.DRAINING
        self._drain_deadline_seconds = time.monotonic() + self._drain_timeout_seconds + _DRAIN_MARGIN_SECONDS
        draining = self._children.get(FRONT) or self._children.get(ZYGOTE)
        if draining is None:
            # No front has asked for workers yet.
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
        self._kill_leftovers()
        self._advance()
        return None

    def _crashed(self, what: str) -> bool:
        """Record a crash; returns True if there were so many that the program has to give up."""
        if self._crashes.are_too_many():
            say(f"{what}, the {CRASHES}th death within {WINDOW_SECONDS:g} seconds: giving up")
            return True
        say(f"{what}: restarting it")
        return False

    def _kill_leftovers(self) -> None:
        """Kill processes that functions of adopted workers, or a dead zygote, have left behind.

        The children of a killed process become children of this process. The SIGCHLD of the killed process makes the
        supervisor call this again.
        """
        wanted = self._adopted_workers | {child.pid for child in self._children.values()}
        found = [pid for pid in children() if pid not in wanted]
        # Check this last: if a zygote has ended meanwhile, `found` includes its living workers, which must not be
        # killed. The zygote's end is handled next.
        if found and not self._a_zygote_has_ended():
            kill(found)

    def _a_zygote_has_ended(self) -> bool:
        return any(has_ended(child.pid) for name, child in self._children.items() if name != FRONT)

    def _end_children(self) -> None:
        for child in self._children.values():
            child.end()
        give_up_seconds = time.monotonic() + LAST_DEATHS_SECONDS
        # Repeat this, because the children of a killed process become children of this process.
        while (left := children()) and time.monotonic() < give_up_seconds:
            kill(left)
            signal.sigwait(SIGNALS)
            while (ended := next_ended()) is not None:
                os.waitpid(ended, 0)
        if left:
            say(f"the processes {left} have not ended, although they were killed")
