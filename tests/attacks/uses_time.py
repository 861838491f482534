# SPDX-License-Identifier: Apache-2.0
"""Attempts to use more time or CPU time for one batch than a function may, against a pool with small limits.

Each attempt stops its worker's timer, and continues until the pool ends the worker.
"""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts

LIMITS = ("--batch-timeout-seconds=5", "--batch-cpu-seconds=3", "--worker-silence-seconds=20")
"""Limits that allow a worker whose timer is stopped eleven seconds for a batch."""
_PATIENCE_SECONDS = 30
_SILENCE_SECONDS = 0.02

WITHOUT_CLOCK = Attempts()
CPU = Attempts()


def stop_clock() -> None:
    """Stop the timer with which this process would end itself."""
    import signal

    signal.setitimer(signal.ITIMER_REAL, 0)


def say_something(consumed: int) -> None:
    """Write a line of the function's log to the exchange's socket, which the client receives."""
    import os

    from updraft.v1.exchange_pb2 import ReplyMetadata
    from updraft_server.ipc.frames import FrameKind, encode_header

    said = ReplyMetadata(consumed=consumed, log_lines=["it goes on"]).SerializeToString()
    rest = memoryview(encode_header(FrameKind.MESSAGE, len(said)) + said)
    while rest:
        rest = rest[os.write(3, rest) :]


def spin(seconds: float) -> None:
    """Use the CPU in this thread."""
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def until_impatient(work: Any) -> str:
    """Repeat the work; return proof if the pool never ended the worker."""
    import time

    end = time.monotonic() + _PATIENCE_SECONDS
    number = 0
    while time.monotonic() < end:
        work(number)
        number += 1
    return f"went on for {_PATIENCE_SECONDS} seconds"


def waits(_number: int) -> None:
    """Use the CPU just long enough to be seen alive, and then neither CPU nor socket."""
    import time

    spin(_SILENCE_SECONDS)
    # The front checks the process while the function rests.
    time.sleep(1)


@WITHOUT_CLOCK
def in_silence(target: Any) -> Any:
    stop_clock()
    return until_impatient(waits)


@WITHOUT_CLOCK
def while_it_talks(target: Any) -> Any:
    stop_clock()

    def talks(number: int) -> None:
        say_something(0)
        waits(number)

    return until_impatient(talks)


@WITHOUT_CLOCK
def that_goes_off_and_is_ignored(target: Any) -> Any:
    import signal

    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return until_impatient(waits)


@CPU
def of_its_own(target: Any) -> Any:
    stop_clock()
    return until_impatient(lambda _: spin(1))


@CPU
def of_its_own_while_it_talks(target: Any) -> Any:
    stop_clock()

    def talks(_number: int) -> None:
        say_something(0)
        spin(0.01)

    return until_impatient(talks)


@CPU
def of_its_own_while_it_says_that_it_has_taken_more(target: Any) -> Any:
    stop_clock()

    def talks(number: int) -> None:
        say_something(number)
        spin(0.01)

    return until_impatient(talks)


@CPU
def of_a_thread(target: Any) -> Any:
    import threading
    import time

    stop_clock()
    threading.Thread(target=spin, args=(_PATIENCE_SECONDS,), daemon=True).start()
    # The other thread computes meanwhile.
    return until_impatient(lambda _: time.sleep(1))


@CPU
def of_children_one_after_another(target: Any) -> Any:
    import os

    stop_clock()

    def forks(_number: int) -> None:
        child = os.fork()
        if child == 0:
            spin(1)
            os._exit(0)
        os.waitpid(child, 0)

    return until_impatient(forks)


@CPU
def of_children_for_which_nobody_waits(target: Any) -> Any:
    import os
    import signal
    import time

    stop_clock()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def forks(_number: int) -> None:
        if os.fork() == 0:
            spin(1)
            os._exit(0)
        # Wait longer than the child computes; no process waits for the child.
        time.sleep(1.2)

    return until_impatient(forks)


@CPU
def of_a_program_that_left_its_session(target: Any) -> Any:
    import subprocess
    import sys
    import time

    stop_clock()
    subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    # The program computes meanwhile.
    return until_impatient(lambda _: time.sleep(1))
