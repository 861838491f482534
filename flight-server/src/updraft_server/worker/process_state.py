# SPDX-License-Identifier: Apache-2.0
"""What an exchange may change in its process, taken back before the next one.

Modules that user code imported stay. Processes that it started end. They and what cannot be taken back (threads) mean
that the worker is replaced.
"""

import contextlib
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

from updraft_server.linux.descendants import children, kill_child

# Also children that were made to end without a signal to their parent, which Python does not name.
_WALL = 0x40000000
_LAST_DEATHS_SECONDS = 1.0
_PAUSE_SECONDS = 0.001
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE)


class ProcessState:
    """A process's settings at the moment when this is made."""

    def __init__(self) -> None:
        root = logging.getLogger()
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._directory = Path.cwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self._signals = [signal.getsignal(number) for number in _SIGNALS]
        self._log_handlers = list(root.handlers)
        self._log_level = root.level
        self._warning_filters = list(warnings.filters)
        self._recursion_limit = sys.getrecursionlimit()
        self._threads = threading.active_count()

    def restore(self) -> bool:
        """Take back what changed; False when something is left that only the end of the process takes away."""
        restore_environment(self._environment)
        sys.path[:] = self._path
        os.chdir(self._directory)
        os.umask(self._umask)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(_SIGNALS, self._signals, strict=True):
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        root = logging.getLogger()
        root.handlers[:] = self._log_handlers
        root.setLevel(self._log_level)
        # It is a list, which typeshed does not say.
        warnings.filters[:] = self._warning_filters  # type: ignore[index]
        reseed()
        sys.setrecursionlimit(self._recursion_limit)
        sys.stdout, sys.stderr = self._stdout, self._stderr
        sys.stdout.flush()
        sys.stderr.flush()
        had_children = _end_children()
        return threading.active_count() == self._threads and not had_children


def restore_environment(environment: dict[str, str]) -> None:
    """Make the environment equal to `environment`, and the time zone with it."""
    if os.environ == environment:
        return
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    time.tzset()


def reseed() -> None:
    """Fresh random numbers: neither the zygote's state, which all workers share, nor a seed that a function set."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def _end_children() -> bool:
    """End what was started here and lives; returns whether there was anything.

    A daemon whose parents are gone is a child of this process. What does not end in time, or what a function keeps from
    this, the zygote ends when it has the worker ended.
    """
    give_up_seconds = time.monotonic() + _LAST_DEATHS_SECONDS
    found = False
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < give_up_seconds:
            pid, _ = os.waitpid(-1, os.WNOHANG | _WALL)
            if pid == 0:
                found = True
                for child in children():
                    kill_child(child)
                # Nothing tells of the end of children of every kind but asking again.
                time.sleep(_PAUSE_SECONDS)
    return found
