# SPDX-License-Identifier: Apache-2.0
"""Functions that use more than they should, or that cannot be interrupted. They are pickled by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.table.functions import well


def forks(column: Any) -> Any:
    """Fork children that wait, as many as the machine allows, up to a bound that keeps the machine usable."""
    import os
    import signal

    for _ in range(200):
        try:
            if os.fork() == 0:
                signal.pause()
        except OSError:
            break
    return well(column)


def daemons(column: Any) -> Any:
    """Fork children of children in sessions of their own, without waiting for them."""
    import os
    import signal

    for _ in range(10):
        if (child := os.fork()) == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while True:
                    signal.pause()
            os._exit(0)
        os.waitpid(child, 0)
    return well(column)


def programs(column: Any) -> Any:
    """Start programs in the background."""
    import subprocess

    for _ in range(10):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return well(column)


def takes_memory(column: Any) -> Any:
    """Allocate more memory than the limit."""
    taken = [bytearray(64 << 20) for _ in range(1000)]
    assert taken
    return well(column)


def takes_memory_and_dies(_: Any) -> Any:
    """End the process as the kernel does when a container is out of memory."""
    import os
    import signal

    taken = bytearray(256 << 20)
    os.kill(os.getpid(), signal.SIGKILL)
    return taken


def prints(column: Any) -> Any:
    """Print thousands of lines, and two lines of 16 MiB."""
    import sys

    for _ in range(20_000):
        print("x" * 100)
    print("y" * (16 << 20))
    sys.stderr.write("z" * (16 << 20))
    return well(column)


def answers_too_much(column: Any) -> Any:
    """Return a batch that exceeds the largest message."""
    import pyarrow as pa

    return pa.array(["x" * (80 << 20)] * len(column))


def opens_files(column: Any) -> Any:
    """Open descriptors until none are left, and leave them open."""
    import builtins
    import os

    opened: list[int] = []
    try:
        while len(opened) < 100_000:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    builtins.left_open = opened  # type: ignore[attr-defined]
    for number in opened[-32:]:
        os.close(number)
    return well(column)


def starts_threads(column: Any) -> Any:
    """Start threads that never end."""
    import threading

    for _ in range(200):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return well(column)


def fills_scratch(column: Any) -> Any:
    """Fill the scratch directory, and leave the file in place."""
    import errno
    import os
    import tempfile

    number, _ = tempfile.mkstemp()
    try:
        for _ in range(1000):
            os.write(number, b"x" * (1 << 20))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return well(column)
    raise AssertionError("the disk is larger than this fault is made for")


def leaves_files(column: Any) -> Any:
    """Leave many small files in the scratch directory."""
    import tempfile

    for _ in range(1000):
        tempfile.NamedTemporaryFile(delete=False).close()
    return well(column)


def exits(_: Any) -> Any:
    """Exit without any message."""
    import os

    os._exit(0)


def overflows_the_stack(_: Any) -> Any:
    """Overflow the stack in C code, which is a segmentation fault."""
    import ctypes

    return ctypes.string_at(0)


def closes_everything(column: Any) -> Any:
    """Close all descriptors, including the worker's own."""
    import os

    os.closerange(0, 256)
    return well(column)


def held_in_c(seconds: int) -> Callable[[Any], Any]:
    """Return a function that sleeps in C code and holds the interpreter lock."""

    def holds(column: Any) -> Any:
        import ctypes

        ctypes.PyDLL(None).sleep(seconds)
        return well(column)

    return holds


def spins_in_c(_: Any) -> Any:
    """Compute forever in C code and hold the interpreter lock; Python's signal handlers never run."""
    return sum(iter(int, 1))


def catches_everything(_: Any) -> Any:
    """Ignore every signal that can be ignored, and every exception."""
    import signal
    import time

    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            continue


def stops_itself(_: Any) -> Any:
    """Stop this process, as a debugger would."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSTOP)
    return None


def tells_the_time(column: Any) -> Any:
    """Return the time of the worker's wall clock."""
    import time

    import pyarrow as pa

    return pa.array([str(time.time())] * len(column))
