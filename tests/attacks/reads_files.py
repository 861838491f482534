# SPDX-License-Identifier: Apache-2.0
"""Attempts to learn what others do with their files, without opening a file."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts, directory_of, system_call

ATTEMPTS = Attempts()

_ALL_EVENTS = 0xFFF


def watched(directory: str) -> str:
    """Watch the names of files that others make, open and remove in the directory."""
    import ctypes
    import errno
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    events = libc.inotify_init1(os.O_CLOEXEC)
    if events < 0 or libc.inotify_add_watch(events, directory.encode(), _ALL_EVENTS) < 0:
        number = ctypes.get_errno() or errno.EPERM
        raise OSError(number, os.strerror(number))
    return f"watches {directory}"


@ATTEMPTS
def the_names_of_what_a_neighbour_makes(target: Any) -> Any:
    import os

    return watched(os.path.dirname(target.victims_file))


@ATTEMPTS
def which_workers_come_and_go(target: Any) -> Any:
    return watched(target.runtime + "/workers")


@ATTEMPTS
def when_the_tokens_are_read(target: Any) -> Any:
    return watched(target.tokens)


@ATTEMPTS
def which_libraries_others_import(target: Any) -> Any:
    return watched(directory_of("pyarrow"))


@ATTEMPTS
def the_names_of_what_a_neighbour_makes_as_an_ordinary_user_may(target: Any) -> Any:
    import os

    # Since Linux 5.13 this call needs no privilege if the events identify files by handles.
    report_names = 0xC00
    os.close(system_call("fanotify_init", report_names, 0))
    return "could be watched"


@ATTEMPTS
def when_a_neighbours_directory_changes(target: Any) -> Any:
    import fcntl
    import os

    directory = os.open("/usr/lib", os.O_RDONLY)
    fcntl.fcntl(directory, fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_CREATE)
    return "is told of what others open"


@ATTEMPTS
def the_log_of_the_kernel_by_its_device(target: Any) -> Any:
    import os

    return os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 8192)


@ATTEMPTS
def what_a_console_shows(target: Any) -> Any:
    import os

    return os.open("/dev/vcs", os.O_RDONLY) or os.open("/dev/tty1", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)


@ATTEMPTS
def who_has_used_the_pool(target: Any) -> Any:
    with open(target.audit) as log:
        return log.read()


@ATTEMPTS
def what_somebody_types(target: Any) -> Any:
    import os

    return os.open(target.terminal, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)


@ATTEMPTS
def what_somebody_types_at_any_terminal(target: Any) -> Any:
    import os

    # Skip ptmx, which makes new terminals and is open to every user.
    names = [name for name in os.listdir("/dev/pts") if name.isdigit()]
    return [os.open(f"/dev/pts/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) for name in names]


@ATTEMPTS
def batches_in_the_shared_memory_of_others(target: Any) -> Any:
    import glob

    found = glob.glob("/dev/shm/updraft-segments-*")
    for maps in glob.glob("/proc/[0-9]*/maps"):
        try:
            with open(maps) as lines:
                found += [line for line in lines if "updraft-segment" in line]
        except OSError:
            continue
    return found


@ATTEMPTS
def the_names_of_a_neighbours_temporary_files(target: Any) -> Any:
    import os

    return os.listdir(os.path.dirname(target.victims_file))


@ATTEMPTS
def the_names_of_shared_memory(target: Any) -> Any:
    import os

    return os.listdir("/dev/shm")


@ATTEMPTS
def the_runtime_directory(target: Any) -> Any:
    import os

    return os.listdir(target.runtime)
