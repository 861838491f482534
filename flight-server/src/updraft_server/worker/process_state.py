# SPDX-License-Identifier: Apache-2.0
"""Snapshot of the process-wide state that an exchange may change. The worker restores it before the next exchange.

Imported modules stay loaded. The worker kills processes that user code started. If there were such processes, or if
something cannot be restored (threads), the pool replaces the worker. If an author's code forks a process, the child
must not return from the author's code into Updraft's (`in_this_process`).
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
from collections.abc import Iterator
from pathlib import Path

from updraft_server.linux.descendants import children, kill_child


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """End any child process that is forked in the block and leaves the block, so that only this process continues."""
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(1)


# __WALL, which Python does not define: also wait for children that do not signal their parent when they end.
_WALL = 0x40000000
_LAST_DEATHS_SECONDS = 1.0
_PAUSE_SECONDS = 0.001
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE)


class ProcessState:
    """Process-wide settings, as they are when this object is made."""

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
        """Restore what has changed. Return False if something is left that only the end of the process removes."""
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
        # This is a list, although typeshed does not say so.
        warnings.filters[:] = self._warning_filters  # type: ignore[index]
        reseed()
        sys.setrecursionlimit(self._recursion_limit)
        sys.stdout, sys.stderr = self._stdout, self._stderr
        sys.stdout.flush()
        sys.stderr.flush()
        had_children = _end_children()
        return threading.active_count() == self._threads and not had_children


def restore_environment(environment: dict[str, str]) -> None:
    """Make the environment equal to `environment`, and update the time zone."""
    if os.environ == environment:
        return
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    time.tzset()


def reseed() -> None:
    """Reseed the random generators. They have the zygote's state, which all workers share, or a function's seed."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def _end_children() -> bool:
    """Kill all live children of this process; return whether there were any.

    A daemon whose parents have ended is a child of this process. A child may outlive this call, or a function may hide
    it. The zygote then kills it when the worker ends.
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
                # Polling is the only way to notice the end of children of every kind.
                time.sleep(_PAUSE_SECONDS)
    return found
