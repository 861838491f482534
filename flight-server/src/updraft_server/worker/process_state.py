# SPDX-License-Identifier: Apache-2.0
"""Snapshot of the process-wide state that an exchange may change. The worker restores it before the next exchange.

Imported modules stay loaded. The worker kills processes that user code started. If there were such processes, or if
something cannot be restored (threads), the pool replaces the worker. `in_this_process` keeps a child that an author's
code forks from returning into Updraft's code.
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
    """Exit any forked child that reaches the end of the block, so that only this process continues after the block."""
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(1)


# __WALL, which Python does not define: also wait for children that do not signal their parent when they exit.
_WALL = 0x40000000
_LAST_DEATHS_SECONDS = 1.0
_PAUSE_SECONDS = 0.001
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE)


class ProcessState:
    """Process-wide settings at the time when this object is created."""

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
        """Restore the settings. Return False if the process must be replaced: it has extra threads, or had children."""
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
        # `warnings.filters` is a list, although typeshed declares another type.
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
    """Reseed the random generators, which otherwise keep a function's seed or the state that all workers inherit."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def _end_children() -> bool:
    """Kill all live children of this process; return whether there were any.

    A daemon whose parents have exited is a child of this process. If a child outlives this call, or if a function hides
    a child, the zygote kills that child when the worker exits.
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
                # Poll, because no signal reports the exit of every kind of child.
                time.sleep(_PAUSE_SECONDS)
    return found
