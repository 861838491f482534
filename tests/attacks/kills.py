# SPDX-License-Identifier: Apache-2.0
"""Attempts to end or stop processes of the pool or of another owner."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts, system_call

ATTEMPTS = Attempts()


def signalled(pid: int, number: int) -> str:
    """Send the signal."""
    import os

    os.kill(pid, number)
    return f"sent {number} to {pid}"


@ATTEMPTS
def the_front(target: Any) -> Any:
    return signalled(target.front, 9)


@ATTEMPTS
def the_zygote(target: Any) -> Any:
    return signalled(target.zygote, 9)


@ATTEMPTS
def the_supervisor(target: Any) -> Any:
    return signalled(target.supervisor, 15)


@ATTEMPTS
def a_neighbour(target: Any) -> Any:
    return signalled(target.victim, 9)


@ATTEMPTS
def whether_the_front_lives(target: Any) -> Any:
    return signalled(target.front, 0)


@ATTEMPTS
def the_front_by_stopping_it(target: Any) -> Any:
    return signalled(target.front, 19)


@ATTEMPTS
def the_zygote_by_stopping_it(target: Any) -> Any:
    return signalled(target.zygote, 19)


@ATTEMPTS
def a_neighbour_by_stopping_it(target: Any) -> Any:
    return signalled(target.victim, 19)


@ATTEMPTS
def the_group_of_the_supervisor(target: Any) -> Any:
    import os

    os.killpg(target.supervisors_group, 0)
    return "its group can be signalled"


@ATTEMPTS
def the_group_of_a_neighbour(target: Any) -> Any:
    import os

    os.killpg(target.victim, 9)
    return "killed"


@ATTEMPTS
def everybody(target: Any) -> Any:
    return signalled(-1, 0)


@ATTEMPTS
def the_front_by_a_program(target: Any) -> Any:
    import subprocess

    return subprocess.run(["sh", "-c", f"kill -9 {target.front}"], capture_output=True).returncode == 0


@ATTEMPTS
def the_front_by_a_grandchild(target: Any) -> Any:
    import os

    if (child := os.fork()) == 0:
        os.setsid()
        try:
            os.kill(target.front, 9)
        except OSError:
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@ATTEMPTS
def the_front_by_its_descriptor(target: Any) -> Any:
    import os
    import signal

    signal.pidfd_send_signal(os.pidfd_open(target.front), 9)
    return "killed"


@ATTEMPTS
def a_neighbour_by_its_descriptor(target: Any) -> Any:
    import os
    import signal

    signal.pidfd_send_signal(os.pidfd_open(target.victim), 9)
    return "killed"


@ATTEMPTS
def the_front_by_a_signal_with_a_value(target: Any) -> Any:
    import ctypes

    information = ctypes.create_string_buffer(128)
    ctypes.cast(information, ctypes.POINTER(ctypes.c_int))[2] = -1
    return system_call("rt_sigqueueinfo", target.front, 9, information) == 0


@ATTEMPTS
def the_front_by_its_thread(target: Any) -> Any:
    return system_call("tgkill", target.front, target.front, 9) == 0


def killed_by_the_owner_of_a_descriptor(pid: int) -> bool:
    """Set `pid` as the owner of a pipe and write to the pipe, so that the kernel sends the signal to `pid`."""
    import fcntl
    import os
    import time

    read, write = os.pipe()
    fcntl.fcntl(read, 10, 9)
    fcntl.fcntl(read, fcntl.F_SETOWN, pid)
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(write, b"x")
    # Wait until the process could have died. A surviving process, as required, causes no event to wait for.
    time.sleep(0.1)
    return not os.path.exists(f"/proc/{pid}")


@ATTEMPTS
def the_front_by_the_owner_of_a_descriptor(target: Any) -> Any:
    return killed_by_the_owner_of_a_descriptor(target.front)


@ATTEMPTS
def a_neighbour_by_the_owner_of_a_descriptor(target: Any) -> Any:
    return killed_by_the_owner_of_a_descriptor(target.victim)


@ATTEMPTS
def the_machine(target: Any) -> Any:
    # Without its magic numbers, the call does nothing except check the permission.
    return system_call("reboot", 0, 0, 0, None) == 0


@ATTEMPTS
def the_zygote_by_what_it_reads(target: Any) -> Any:
    import contextlib
    import os

    written = []
    # Start after descriptor 5, the pipe on which the worker reports its own stack.
    for number in range(6, 64):
        # Some descriptors, such as an epoll's, cannot be written to.
        with contextlib.suppress(OSError):
            written.append(os.write(number, b"garbage"))
    return written


@ATTEMPTS
def everybody_by_their_lifeline(target: Any) -> Any:
    import os

    # All workers and the zygote hold the reading end of the lifeline, and exit when anybody writes to the lifeline.
    lifeline = os.open("/proc/self/fd/4", os.O_WRONLY | os.O_NONBLOCK)
    return f"wrote {os.write(lifeline, b'x')} byte"


@ATTEMPTS
def the_front_by_descriptors_that_it_has_to_close(target: Any) -> Any:
    import array
    import contextlib
    import os
    import socket
    import struct

    from updraft_server.ipc.frames import FrameKind, encode_header

    # The process that opened an unread connection decides how long closing the connection takes.
    listening = socket.create_server(("127.0.0.1", 0))
    slow = socket.create_connection(listening.getsockname())
    slow.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            slow.send(bytes(1 << 16))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
    descriptors = array.array("i", [slow.fileno()])
    with socket.socket(fileno=os.dup(3)) as front:
        front.sendmsg([encode_header(FrameKind.MESSAGE)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])


@ATTEMPTS
def the_machine_by_a_watchdog(target: Any) -> Any:
    import os

    # Open the device by path and do not write, so that no watchdog starts if the open succeeds.
    return os.path.exists("/dev/watchdog") and os.open("/dev/watchdog", os.O_RDONLY)


@ATTEMPTS
def its_own_worker_at_once(target: Any) -> Any:
    import os

    os._exit(0)


@ATTEMPTS
def its_own_worker_by_a_signal(target: Any) -> Any:
    import os

    os.kill(os.getpid(), 9)


@ATTEMPTS
def its_own_worker_by_a_crash(target: Any) -> Any:
    import ctypes

    ctypes.string_at(0)


@ATTEMPTS
def its_own_worker_by_its_group(target: Any) -> Any:
    import os

    os.kill(0, 9)


@ATTEMPTS
def its_own_socket(target: Any) -> Any:
    import os

    os.close(3)


@ATTEMPTS
def both_ways_of_its_own_socket(target: Any) -> Any:
    import socket

    socket.socket(fileno=3).shutdown(socket.SHUT_RDWR)


@ATTEMPTS
def the_front_by_a_flood_of_observers(target: Any) -> Any:
    import contextlib
    import socket

    host, _, port = target.metrics.rpartition(":")
    with contextlib.ExitStack() as flood:
        for _ in range(500):
            flood.enter_context(socket.create_connection((host, int(port)), 30)).send(b"GET /metrics HTTP/1.1\r\nX: ")


@ATTEMPTS
def the_zygote_by_descriptors_in_flight(target: Any) -> Any:
    import array
    import builtins
    import contextlib
    import errno
    import resource
    import socket

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # A user whose descriptors in flight exceed the limit cannot send more. They stay in flight while the sockets are
    # open.
    kept: list[Any] = []
    vars(builtins)["kept_in_flight"] = kept
    descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 253))]
    try:
        while len(kept) < 1000:
            ends = socket.socketpair()
            kept.append(ends)
            ends[0].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    ends[0].sendmsg([b"x"], descriptors)
    except OSError as error:
        if error.errno not in (errno.ETOOMANYREFS, errno.EMFILE):
            raise
