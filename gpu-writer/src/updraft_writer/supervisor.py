# SPDX-License-Identifier: Apache-2.0
"""Process of `updraft-writer serve`, which starts the writer, restarts a writer that died or hangs, and ends it.

This process imports neither gRPC nor pyarrow and does not use the network, so that only a signal can make it fail. When
this process dies, the writer ends too. When the writer dies, clients send their unfinished files to the new writer.
"""

import contextlib
import math
import os
import signal
import sys
import time

from updraft.service.child import CRASHES, WINDOW_SECONDS, Child, Crashes, describe_exit
from updraft.service.heartbeat import INTERVAL_SECONDS, SILENT_TURNS
from updraft.service.lossy_streams import protect_standard_streams
from updraft.service.parent import stdin_has_ended
from updraft_writer.settings import ServeSettings

SETTINGS_VARIABLE = "UPDRAFT_WRITER_SETTINGS"
"""Environment variable that passes the checked settings to the writer's process, as JSON of `ServeSettings`."""

EXIT_FAILURE = 1
# A timer of this process sends SIGALRM every INTERVAL_SECONDS.
_SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM})
_START_UP_SECONDS = 10.0
_DRAIN_MARGIN_SECONDS = 15.0


class Supervisor:
    """Supervisor of one child, driven by signals."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._crashes = Crashes()
        self._drain_deadline_seconds = math.inf
        """Time by which the drain must be over; infinite before a drain begins."""
        self._started_seconds = 0.0
        self._child: Child

    def run(self) -> int:
        """Supervise until the writer has drained or cannot be restarted. Return the exit status."""
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
        self._start()
        try:
            while True:
                status = self._step()
                if status is not None:
                    return status
        finally:
            self._child.end()

    def _step(self) -> int | None:
        # Wait without a timeout: Python's sigtimedwait returns garbage if SIGSTOP stops this process past the timeout.
        match signal.sigwait(_SIGNALS):
            case signal.SIGALRM:
                return self._look()
            case signal.SIGCHLD:
                return self._reap()
            case _:
                return self._stop()

    def _start(self) -> None:
        environment = {**os.environ, SETTINGS_VARIABLE: self._settings.model_dump_json()}
        self._started_seconds = time.monotonic()
        self._child = Child("updraft_writer.process", environment)

    @property
    def _is_draining(self) -> bool:
        return self._drain_deadline_seconds < math.inf

    def _look(self) -> int | None:
        if self._child.is_stuck():
            _say(f"the writer has not reported for {SILENT_TURNS * INTERVAL_SECONDS:g} seconds: killing it")
            self._child.kill()
        if self._settings.end_with_stdin and not self._is_draining and stdin_has_ended():
            return self._stop()
        if time.monotonic() < self._drain_deadline_seconds:
            return None
        _say("the writer did not drain in time: killing it")
        return EXIT_FAILURE

    def _stop(self) -> int | None:
        """Ask the writer to drain. On a second request, stop at once."""
        if self._is_draining:
            _say("stopping at once: unfinished files are lost")
            return EXIT_FAILURE
        self._drain_deadline_seconds = time.monotonic() + self._settings.drain_timeout_seconds + _DRAIN_MARGIN_SECONDS
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child.pid, signal.SIGTERM)
        return None

    def _reap(self) -> int | None:
        ended, wait_status = os.waitpid(self._child.pid, os.WNOHANG)
        if not ended:
            return None
        code = os.waitstatus_to_exitcode(wait_status)
        self._child.reaped(code)
        # SIGTERM kills a draining writer only if the writer has not installed its signal handler yet, and then it has
        # no clients.
        if code == 0 or (self._is_draining and code == -signal.SIGTERM):
            return 0
        if self._is_draining:
            _say(f"the writer {describe_exit(code)} while it drained")
            return EXIT_FAILURE
        if code > 0 and time.monotonic() - self._started_seconds < _START_UP_SECONDS:
            # The writer has already reported why it cannot start.
            return code
        if self._crashes.are_too_many():
            _say(
                f"the writer {describe_exit(code)}, the {CRASHES}th death within {WINDOW_SECONDS:g} seconds: giving up"
            )
            return EXIT_FAILURE
        _say(f"the writer {describe_exit(code)}: restarting it")
        self._start()
        return None


def supervise(settings: ServeSettings) -> int:
    """Run a writer until it is stopped; return the exit status of `updraft-writer serve`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    protect_standard_streams()
    return Supervisor(settings.with_free_ports()).run()


def _say(what: str) -> None:
    sys.stderr.write(f"updraft-writer: {what}\n")
