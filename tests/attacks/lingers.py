# SPDX-License-Identifier: Apache-2.0
"""Attempts to continue after an exchange, or to keep resources, against a pool with the limits of `exhausts`.

Each attempt returns at once, so the pool can find what it left behind only by a check between two exchanges.
"""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts
from tests.attacks.exhausts import MIB, written

REPLACED = Attempts()
STOPPED = Attempts()
_BEYOND_MEMORY_BYTES = 384 * MIB


def without_a_trace(work: Any) -> None:
    """Run the work in a thread that Python does not list."""
    import _thread

    _thread.start_new_thread(work, ())


def compute() -> None:
    """Use the processor forever."""
    while True:
        pass


@REPLACED
def a_thread(target: Any) -> Any:
    without_a_trace(compute)


def a_thread_in_each_application(target: Any) -> int:
    """Start one thread in this worker, unless an earlier call has, and return the worker's process id."""
    import builtins
    import os

    if not vars(builtins).get("computes"):
        vars(builtins)["computes"] = True
        without_a_trace(compute)
    return os.getpid()


@STOPPED
def a_thread_that_waits_until_its_worker_is_quiet(target: Any) -> Any:
    import time

    def waits() -> None:
        time.sleep(2)
        compute()

    without_a_trace(waits)


@REPLACED
def a_timer_that_continues_its_worker(target: Any) -> Any:
    import ctypes
    import signal

    class Event(ctypes.Structure):
        _fields_ = (("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int))

    class Times(ctypes.Structure):
        _fields_ = (("interval", ctypes.c_long * 2), ("first", ctypes.c_long * 2))

    # A timer whose signal is ignored fires only once.
    signal.signal(signal.SIGCONT, lambda *_: None)
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(64)
    event = Event.from_buffer(room)
    event.signal, event.notify = signal.SIGCONT, 0
    timer = ctypes.c_void_p()
    if libc.timer_create(1, room, ctypes.byref(timer)) != 0:
        raise OSError(ctypes.get_errno(), "timer_create")
    # Every quarter of a second, forever.
    every = (ctypes.c_long * 2)(0, 250_000_000)
    if libc.timer_settime(timer, 0, ctypes.byref(Times(every, every)), None) != 0:
        raise OSError(ctypes.get_errno(), "timer_settime")

    def waits() -> None:
        import time

        # After this time, the worker is quiet and the pool has stopped it.
        time.sleep(1.5)
        compute()

    without_a_trace(waits)


@REPLACED
def memory_in_a_module(target: Any) -> Any:
    import builtins

    vars(builtins)["kept"] = written(bytearray(_BEYOND_MEMORY_BYTES), _BEYOND_MEMORY_BYTES)


@REPLACED
def scratch_files(target: Any) -> Any:
    import os
    import tempfile

    for number in range(2):
        with open(os.path.join(tempfile.gettempdir(), f"kept-{number}"), "wb") as file:
            file.write(b"\x01" * (48 * MIB))
