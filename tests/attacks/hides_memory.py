# SPDX-License-Identifier: Apache-2.0
"""Attempts to hold memory that the kernel attributes to no process.

A pool cannot measure such memory, so the sandbox refuses the system calls. Each attempt returns what it holds.
`exhausts` contains the attempts with measurable memory.
"""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts, system_call

_BYTES = 8 << 20
_SHARED, _ANONYMOUS = 0x01, 0x20
_HUGE_PAGE_BYTES = 2 << 20

REFUSED = Attempts()


def left_unmapped(flags: int, file: int = -1) -> str:
    """Map memory with the kernel's own call, write to it, and unmap all but its last page."""
    import ctypes
    import mmap
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    arguments = (ctypes.c_size_t(_BYTES), mmap.PROT_READ | mmap.PROT_WRITE, flags, file, ctypes.c_long(0))
    address = libc.mmap(None, *arguments)
    if address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    ctypes.memset(address, 1, _BYTES)
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(_BYTES - mmap.PAGESIZE))
    return f"{_BYTES} bytes are in no process"


def file_of_large_pages() -> int:
    """Open a temporary file in memory, with the largest pages that its file system supports."""
    import os
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(bytes(_BYTES))
        file.seek(0)
        return os.dup(file.fileno())


@REFUSED
def shared_memory_that_is_unmapped(target: Any) -> Any:
    return left_unmapped(_SHARED | _ANONYMOUS)


@REFUSED
def shared_memory_that_other_flags_hide(target: Any) -> Any:
    no_reserve = 0x4000
    return left_unmapped(_SHARED | _ANONYMOUS | no_reserve)


@REFUSED
def zeros_that_are_written(target: Any) -> Any:
    import os

    return left_unmapped(_SHARED, os.open("/dev/zero", os.O_RDWR))


@REFUSED
def pages_in_a_pipe(target: Any) -> Any:
    import ctypes
    import os

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    _reading, writing = os.pipe()
    pages = ctypes.create_string_buffer(4096)
    return system_call("vmsplice", writing, ctypes.byref(Vector(ctypes.addressof(pages), 4096)), 1, 0)


@REFUSED
def pages_of_a_file_in_a_pipe(target: Any) -> Any:
    import os

    _reading, writing = os.pipe()
    file = file_of_large_pages()
    held = system_call("splice", file, None, writing, None, 4096, 0)
    os.ftruncate(file, 0)
    return held


@REFUSED
def pages_of_a_file_in_a_socket(target: Any) -> Any:
    import os
    import socket

    writing, _reading = socket.socketpair()
    file = file_of_large_pages()
    # One sent byte of a large page keeps the whole page in memory.
    held = [os.sendfile(writing.fileno(), file, offset, 1) for offset in range(0, _BYTES, _HUGE_PAGE_BYTES)]
    os.ftruncate(file, 0)
    return held


@REFUSED
def pages_of_its_own_in_a_socket(target: Any) -> Any:
    import socket

    zero_copy = 60
    with socket.socket() as unsent:
        unsent.setsockopt(socket.SOL_SOCKET, zero_copy, 1)
        return unsent.getsockopt(socket.SOL_SOCKET, zero_copy)


@REFUSED
def a_socket_that_holds_more(target: Any) -> Any:
    return enlarged("SO_SNDBUF")


@REFUSED
def a_socket_that_takes_more(target: Any) -> Any:
    return enlarged("SO_RCVBUF")


@REFUSED
def a_socket_that_holds_more_than_a_user_may(target: Any) -> Any:
    import socket

    beyond_the_users = 32
    with socket.socket() as large:
        large.setsockopt(socket.SOL_SOCKET, beyond_the_users, _BYTES)
    return "it is larger"


def enlarged(name: str) -> int:
    """Try to enlarge a socket's buffer; return its new size."""
    import errno
    import socket

    option = getattr(socket, name)
    with socket.socket(socket.AF_UNIX) as large:
        before = large.getsockopt(socket.SOL_SOCKET, option)
        large.setsockopt(socket.SOL_SOCKET, option, _BYTES)
        after = large.getsockopt(socket.SOL_SOCKET, option)
    if after <= before:
        raise OSError(errno.EPERM, "the call was ignored")
    return after
