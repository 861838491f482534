# SPDX-License-Identifier: Apache-2.0
"""Attempts to leave something behind: one owner leaves a residue, and the next owner looks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.attacks.attempts import name_itself, occurrences_in_own_memory, processes_that_stay


class Residue(NamedTuple):
    """Residue: a function by which one owner leaves it, and a function by which the next owner would notice it."""

    name: str
    leave: Callable[[Any], Any]
    notice: Callable[[Any], Any]


RESIDUES: list[Residue] = []

NOT_YET: dict[str, str] = {}
"""Residues that still reach the next owner, with the reasons."""


def residue(leave: Callable[[Any], Any]) -> Callable[[Callable[[Any], Any]], None]:
    """Return a decorator that pairs `leave` with the function that notices what `leave` left."""

    def paired(notice: Callable[[Any], Any]) -> None:
        RESIDUES.append(Residue(leave.__name__, leave, notice))

    return paired


def a_global(target: Any) -> Any:
    import builtins

    vars(builtins)["left_behind"] = 1


@residue(a_global)
def _(target: Any) -> Any:
    import builtins

    return hasattr(builtins, "left_behind")


def a_module(target: Any) -> Any:
    import sys
    import types

    sys.modules["left_behind"] = types.ModuleType("left_behind")


@residue(a_module)
def _(target: Any) -> Any:
    import sys

    return "left_behind" in sys.modules


def a_changed_library(target: Any) -> Any:
    import pyarrow as pa

    pa.left_behind = 1


@residue(a_changed_library)
def _(target: Any) -> Any:
    import pyarrow as pa

    return hasattr(pa, "left_behind")


def an_environment_variable(target: Any) -> Any:
    import ctypes

    # Set the variable in C, so that Python's own dictionary does not contain it.
    ctypes.CDLL(None).setenv(b"LEFT_BEHIND", b"1", 1)


@residue(an_environment_variable)
def _(target: Any) -> Any:
    import ctypes

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    return libc.getenv(b"LEFT_BEHIND")


def a_thread(target: Any) -> Any:
    import threading
    import time

    threading.Thread(target=time.sleep, args=(1000,), daemon=True, name="left-behind").start()


@residue(a_thread)
def _(target: Any) -> Any:
    import os

    # Up to four threads may be the worker's own, such as the thread that watches batches.
    return len(os.listdir("/proc/self/task")) > 4 or [
        1 for number in os.listdir("/proc/self/task") if "left" in open(f"/proc/self/task/{number}/comm").read()
    ]


def a_thread_that_python_does_not_know(target: Any) -> Any:
    import _thread
    import time

    def name_and_sleep() -> None:
        name_itself()
        time.sleep(1000)

    _thread.start_new_thread(name_and_sleep, ())
    time.sleep(0.1)


@residue(a_thread_that_python_does_not_know)
def _(target: Any) -> Any:
    import os

    names = (open(f"/proc/self/task/{number}/comm").read() for number in os.listdir("/proc/self/task"))
    return [name for name in names if "left-behind" in name]


def a_file(target: Any) -> Any:
    import os
    import tempfile

    with open(os.path.join(tempfile.gettempdir(), "left-behind"), "w") as file:
        file.write("secret")


@residue(a_file)
def _(target: Any) -> Any:
    import os
    import tempfile

    return os.path.exists(os.path.join(tempfile.gettempdir(), "left-behind"))


def a_file_in_tmp(target: Any) -> Any:
    try:
        with open("/tmp/updraft-left-behind", "w") as file:
            file.write("secret")
    except OSError:
        pass


@residue(a_file_in_tmp)
def _(target: Any) -> Any:
    import os

    if found := os.path.exists("/tmp/updraft-left-behind"):
        os.unlink("/tmp/updraft-left-behind")
    return found


def a_file_where_it_works(target: Any) -> Any:
    try:
        with open("left-behind", "w") as file:
            file.write("secret")
    except OSError:
        pass


@residue(a_file_where_it_works)
def _(target: Any) -> Any:
    import os

    return os.path.exists("left-behind")


def another_directory(target: Any) -> Any:
    import os

    os.chdir("/usr")


@residue(another_directory)
def _(target: Any) -> Any:
    import os

    return os.getcwd() == "/usr"


def another_umask(target: Any) -> Any:
    import os

    os.umask(0)


@residue(another_umask)
def _(target: Any) -> Any:
    import os

    mask = os.umask(0o77)
    os.umask(mask)
    return mask == 0


def a_signal_handler(target: Any) -> Any:
    import signal

    signal.signal(signal.SIGUSR1, lambda *_: None)


@residue(a_signal_handler)
def _(target: Any) -> Any:
    import signal

    return signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL


def a_timer(target: Any) -> Any:
    import signal

    signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000)


@residue(a_timer)
def _(target: Any) -> Any:
    import signal

    return signal.getitimer(signal.ITIMER_VIRTUAL)[0]


def a_limit(target: Any) -> Any:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (12345, 12345))


@residue(a_limit)
def _(target: Any) -> Any:
    import resource

    return resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 12345


def a_locale(target: Any) -> Any:
    import decimal

    decimal.getcontext().prec = 3


@residue(a_locale)
def _(target: Any) -> Any:
    import decimal

    return decimal.getcontext().prec == 3


def an_import_hook(target: Any) -> Any:
    import sys

    class LeftBehind:
        @staticmethod
        def find_spec(*_: object) -> None:
            return None

    sys.meta_path.insert(0, LeftBehind())


@residue(an_import_hook)
def _(target: Any) -> Any:
    import sys

    return [1 for hook in sys.meta_path if type(hook).__name__ == "LeftBehind"]


def a_path_to_import_from(target: Any) -> Any:
    import sys

    sys.path.insert(0, "/left/behind")


@residue(a_path_to_import_from)
def _(target: Any) -> Any:
    import sys

    return "/left/behind" in sys.path


def a_trace(target: Any) -> Any:
    import threading

    threading.setprofile(lambda *_: None)


@residue(a_trace)
def _(target: Any) -> Any:
    import threading

    return threading.getprofile()


def what_runs_at_the_end(target: Any) -> Any:
    import atexit

    atexit.register(print, "left behind")


@residue(what_runs_at_the_end)
def _(target: Any) -> Any:
    import atexit

    return atexit._ncallbacks() > target.callbacks_at_the_end


def an_open_descriptor(target: Any) -> Any:
    import os

    os.dup2(os.open("/dev/null", os.O_RDONLY), 50)


@residue(an_open_descriptor)
def _(target: Any) -> Any:
    import os

    return os.path.exists("/proc/self/fd/50")


def shared_memory(target: Any) -> Any:
    import os

    descriptor = os.open("/dev/shm/updraft-left-behind", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(descriptor, b"secret")


@residue(shared_memory)
def _(target: Any) -> Any:
    import os

    if found := os.path.exists("/dev/shm/updraft-left-behind"):
        os.unlink("/dev/shm/updraft-left-behind")
    return found


def a_process(target: Any) -> Any:
    import os
    import time

    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            name_itself()
            time.sleep(1000)
        os._exit(0)
    time.sleep(0.2)


@residue(a_process)
def _(target: Any) -> Any:
    return processes_that_stay()


def a_program(target: Any) -> Any:
    import subprocess

    subprocess.Popen(["sh", "-c", "exec -a left-behind sleep 1000 || sleep 1000"], start_new_session=True)


@residue(a_program)
def _(target: Any) -> Any:
    return processes_that_stay()


def memory_that_was_freed(target: Any) -> Any:
    import ctypes

    # Leave a secret in freed memory, because another owner may be given the same block.
    for _ in range(1000):
        ctypes.create_string_buffer(bytes(reversed(target.reversed_secret.encode())) * 8)


@residue(memory_that_was_freed)
def _(target: Any) -> Any:
    return occurrences_in_own_memory(bytes(reversed(target.reversed_secret.encode()))) > 16
