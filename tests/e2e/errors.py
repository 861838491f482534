# SPDX-License-Identifier: Apache-2.0
"""Failures of functions in the matrix: what they do instead of returning values, after how many calls; the error."""

from __future__ import annotations

import os
import re
import signal
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.e2e.kinds.kind import Change

_JVMS_FRAME = re.compile(r"^\tat .*\n?", re.MULTILINE)
_PYSPARKS_FRAME = re.compile(r'^  File "[^"]*/pyspark/.*\n(?:    .*\n)*', re.MULTILINE)
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
_NOTE_OF_THE_POOL = re.compile(r"\nIt ran on the Updraft pool at .*")
_DRIVERS_MODULE = "a_module_of_the_driver_alone"


@dataclass(frozen=True)
class ErrorCase:
    """Failure that runs `act` once the function was called `after` times."""

    name: str
    act: Callable[[], None]
    after: int = 0

    def change(self) -> Change:
        """Return a change that fails."""
        return _Failing(self.act, self.after)


class _Failing:
    def __init__(self, act: Callable[[], None], after: int):
        self._act = act
        self._calls_left = after

    def __call__(self, values: Any) -> Any:
        if self._calls_left == 0:
            self._act()
        self._calls_left -= 1
        return values


def _raise(error: BaseException) -> Callable[[], None]:
    def fail_on_purpose() -> None:
        raise error

    return fail_on_purpose


def _fail_with_a_cause() -> None:
    try:
        int("no number")
    except ValueError as error:
        raise RuntimeError("because of another") from error


def _import_what_is_not_there() -> None:
    __import__("a_module_that_nobody_has")


def _use_a_module_of_the_driver() -> Callable[[], None]:
    module = types.ModuleType(_DRIVERS_MODULE)
    # Pickled by reference, like a user's module that was not shipped: importable here, but not in a worker.
    exec("def act(): pass", module.__dict__)
    sys.modules[_DRIVERS_MODULE] = module
    return module.act  # type: ignore[no-any-return]


def _die_by(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


PLAIN = ErrorCase("plain", _raise(ValueError("a value that nobody likes")))
LATE = ErrorCase("late", _raise(ValueError("a value that nobody likes")), after=2)
MISSING_MODULES = [
    ErrorCase("import", _import_what_is_not_there),
    ErrorCase("unpickling", _use_a_module_of_the_driver()),
]
# Each failure costs stock a worker, so not every kind is tested with each of these.
RAISED = [
    ErrorCase("key_error", _raise(KeyError("missing"))),
    ErrorCase("non_ascii", _raise(RuntimeError("žluťoučký kůň 🐎"))),
    ErrorCase("empty", _raise(Exception())),
    ErrorCase("exit", _raise(SystemExit(3))),
    ErrorCase("stop", _raise(StopIteration("early"))),
    ErrorCase("long", _raise(RuntimeError("long " * 20_000 + "and over"))),
    ErrorCase("caused", _fail_with_a_cause),
    *MISSING_MODULES,
]
CRASHES = [ErrorCase(number.name, _die_by(number)) for number in (signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT)]
QUIET_EXIT = ErrorCase("quiet_exit", lambda: os._exit(0))


def told(error: Exception | None) -> str:
    """Return what the error says about the user's code.

    It leaves out the JVM's stack, PySpark's own frames, addresses of objects, and the pool's note about a module that
    it lacks.
    """
    told = _PYSPARKS_FRAME.sub("", _JVMS_FRAME.sub("", str(error)))
    return _ADDRESS.sub("0x", _NOTE_OF_THE_POOL.sub("", told))
