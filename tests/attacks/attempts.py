# SPDX-License-Identifier: Apache-2.0
"""Attempt of a hostile function: its definition, its UDF, and its outcome.

Workers do not have this module and the modules with attempts, so their functions are pickled by value. Each function
therefore imports the modules that it needs, from the standard library.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

REFUSALS = ("EPERM", "EACCES", "ENOSYS", "ENOENT", "ESRCH", "EROFS", "EXDEV", "ECONNREFUSED", "EAFNOSUPPORT")
"""Errors by which a kernel refuses a call or reports that nothing is available. Any other error means a broken test."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Outcome of an attempt."""

    refused: str = ""
    """Name of the error with which the kernel refused the attempt."""
    evidence: str = ""
    """Proof that the attempt succeeded; empty if there is no proof."""
    broken: str = ""
    """Traceback of a mistake in the attempt's own code."""
    died: bool = False
    """Whether the attempt made the exchange fail."""
    ended: str = ""
    """Error with which the exchange failed."""

    @property
    def failed(self) -> bool:
        """Whether the attempt was unsuccessful, as it must be."""
        return not self.evidence and not self.broken and (not self.refused or self.refused in REFUSALS)


class Attempts:
    """Attempts of a group, in the order of their definition."""

    def __init__(self) -> None:
        self._functions: list[Callable[[Any], Any]] = []

    def __call__(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Add an attempt: a function of its surroundings that returns proof of success, or nothing."""
        self._functions.append(function)
        return function

    def __iter__(self) -> Iterator[Callable[[Any], Any]]:
        return iter(self._functions)


def carried(attempt: Callable[[Any], Any], surroundings: Any) -> Callable[[Any], Any]:
    """Return the attempt as a UDF over one row, which returns the attempt's verdict as JSON."""

    def udf(column: Any) -> Any:
        import errno
        import json
        import traceback

        import pyarrow as pa

        try:
            verdict = {"evidence": repr(found)[:300] if (found := attempt(surroundings)) else ""}
        except OSError as error:
            verdict = {"refused": errno.errorcode.get(error.errno or 0, str(error))}
        except BaseException:
            verdict = {"broken": traceback.format_exc()}
        return pa.array([json.dumps(verdict)] * len(column), pa.string())

    return udf


def verdict_of(text: str) -> Verdict:
    """Parse the UDF's result."""
    return Verdict(**json.loads(text))


def directory_of(package: str) -> str:
    """Return the directory of a package that every process of the pool may import."""
    import importlib
    import os

    return os.path.dirname(str(importlib.import_module(package).__file__))


def shifted(secret: str) -> bytes:
    """Return an altered copy of a secret, so that a function can search for the secret without holding it."""
    return bytes(byte + 1 for byte in secret.encode())


def holds_secret(shifted_secret: bytes) -> bool:
    """Return whether the secret of `shifted_secret` is in this process's writable memory, without making a copy."""
    return occurrences_in_own_memory(shifted_secret, shift=1) > 0


def occurrences_in_own_memory(needle: bytes, shift: int = 0) -> int:
    """Return how often the bytes, each lowered by `shift`, are in this process's writable memory.

    Without a shift, the search finds a few copies of its own.
    """
    found = 0
    table = bytes((byte + shift) % 256 for byte in range(256))
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps:
            bounds, rights = line.split()[:2]
            begin, end = (int(part, 16) for part in bounds.split("-"))
            if not rights.startswith("rw") or end - begin > 1 << 28:
                continue
            try:
                memory.seek(begin)
                found += memory.read(end - begin).translate(table).count(needle)
            except OSError:
                continue
    return found


def exchange_memory(call: str, pid: int, here: Any, address: int) -> int:
    """Call `process_vm_readv` or `process_vm_writev` between our own buffer and an address of another process."""
    import ctypes

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    local, remote = Vector(ctypes.addressof(here), len(here)), Vector(address, len(here))
    return system_call(call, pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)


def system_call(name: str, *arguments: Any) -> int:
    """Make a system call that Python does not wrap; raises OSError. For use inside attempts."""
    import ctypes
    import os

    numbers = {
        "x86_64": {
            "ptrace": 101,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "pidfd_open": 434,
            "pidfd_getfd": 438,
            "pidfd_send_signal": 424,
            "kcmp": 312,
            "perf_event_open": 298,
            "userfaultfd": 323,
            "bpf": 321,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "shmget": 29,
            "semget": 64,
            "msgget": 68,
            "io_uring_setup": 425,
            "mount": 165,
            "umount2": 166,
            "fsopen": 430,
            "open_tree": 428,
            "unshare": 272,
            "setns": 308,
            "clone": 56,
            "chroot": 161,
            "pivot_root": 155,
            "open_by_handle_at": 304,
            "init_module": 175,
            "reboot": 169,
            "swapon": 167,
            "sethostname": 170,
            "clock_settime": 227,
            "settimeofday": 164,
            "prlimit64": 302,
            "setpriority": 141,
            "sched_setaffinity": 203,
            "sched_setscheduler": 144,
            "ioprio_set": 251,
            "rt_sigqueueinfo": 129,
            "tgkill": 234,
            "acct": 163,
            "quotactl": 179,
            "kexec_load": 246,
            "migrate_pages": 256,
            "move_pages": 279,
            "process_madvise": 440,
            "fanotify_init": 300,
            "lookup_dcookie": 212,
            "personality": 135,
            "syslog": 103,
            "splice": 275,
            "vmsplice": 278,
        },
        "aarch64": {
            "ptrace": 117,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "pidfd_open": 434,
            "pidfd_getfd": 438,
            "pidfd_send_signal": 424,
            "kcmp": 272,
            "perf_event_open": 241,
            "userfaultfd": 282,
            "bpf": 280,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "shmget": 194,
            "semget": 190,
            "msgget": 186,
            "io_uring_setup": 425,
            "mount": 40,
            "umount2": 39,
            "fsopen": 430,
            "open_tree": 428,
            "unshare": 97,
            "setns": 268,
            "clone": 220,
            "chroot": 51,
            "pivot_root": 41,
            "open_by_handle_at": 265,
            "init_module": 105,
            "reboot": 142,
            "swapon": 224,
            "sethostname": 161,
            "clock_settime": 112,
            "settimeofday": 170,
            "prlimit64": 261,
            "setpriority": 140,
            "sched_setaffinity": 122,
            "sched_setscheduler": 119,
            "ioprio_set": 30,
            "rt_sigqueueinfo": 138,
            "tgkill": 131,
            "acct": 89,
            "quotactl": 60,
            "kexec_load": 104,
            "migrate_pages": 238,
            "move_pages": 239,
            "process_madvise": 440,
            "fanotify_init": 262,
            "lookup_dcookie": 18,
            "personality": 92,
            "syslog": 116,
            "splice": 76,
            "vmsplice": 75,
        },
    }[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(numbers[name], *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return int(result)


def name_itself() -> None:
    """Give this thread a name by which the next owner can find it, because a worker cannot write to /proc."""
    import ctypes

    ctypes.CDLL(None).prctl(15, b"left-behind", 0, 0, 0)


def processes_that_stay() -> list[str]:
    """Return the left-behind processes that stay alive. The pool kills such processes while other workers run.

    If the pool has no PID namespaces, owners who work at the same time see each other's processes in any case.
    """
    import time

    deadline_seconds = time.monotonic() + 5
    while (found := processes_left_behind()) and time.monotonic() < deadline_seconds:
        time.sleep(0.01)
    return found


def processes_left_behind() -> list[str]:
    """Return the processes whose name or command line contains the mark."""
    import os

    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/cmdline") as command:
                if "left-behind" in comm.read() + command.read():
                    found.append(pid)
        except OSError:
            continue
    return found
