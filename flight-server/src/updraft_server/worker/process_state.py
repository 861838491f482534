# SPDX-License-Identifier: Apache-2.0
"""What an exchange may change in its process, taken back before the next one.

Modules that user code imported stay. What cannot be taken back (threads, child processes) means that the worker is
replaced.
"""

import dataclasses
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings
from typing import Any, Self, TextIO

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE)


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessState:
    """A process's settings at one moment."""

    environment: dict[str, str]
    path: list[str]
    directory: str
    umask: int
    stdout: TextIO
    stderr: TextIO
    signals: list[Any]
    log_handlers: list[logging.Handler]
    log_level: int
    warning_filters: list[Any]
    recursion_limit: int
    threads: int

    @classmethod
    def capture(cls) -> Self:
        """What `restore` will come back to."""
        root = logging.getLogger()
        umask = os.umask(0o077)
        os.umask(umask)
        return cls(
            environment=dict(os.environ),
            path=list(sys.path),
            directory=os.getcwd(),  # noqa: PTH109
            umask=umask,
            stdout=sys.stdout,
            stderr=sys.stderr,
            signals=[signal.getsignal(number) for number in _SIGNALS],
            log_handlers=list(root.handlers),
            log_level=root.level,
            warning_filters=list(warnings.filters),
            recursion_limit=sys.getrecursionlimit(),
            threads=threading.active_count(),
        )

    def restore(self) -> bool:
        """Take back what changed; False when something is left that only the end of the process takes away."""
        restore_environment(self.environment)
        sys.path[:] = self.path
        os.chdir(self.directory)
        os.umask(self.umask)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(_SIGNALS, self.signals, strict=True):
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        root = logging.getLogger()
        root.handlers[:] = self.log_handlers
        root.setLevel(self.log_level)
        warnings.filters[:] = self.warning_filters  # type: ignore[index]
        reseed()
        sys.setrecursionlimit(self.recursion_limit)
        sys.stdout, sys.stderr = self.stdout, self.stderr
        sys.stdout.flush()
        sys.stderr.flush()
        return threading.active_count() == self.threads and not _has_children()


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


def _has_children() -> bool:
    try:
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return True
    except ChildProcessError:
        return False
