# SPDX-License-Identifier: Apache-2.0
"""A seccomp filter: system calls that the kernel refuses to this process and its descendants, for good."""

import ctypes
import errno
import os
import struct
from collections.abc import Mapping

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000


def refusing(errors: Mapping[int, int]) -> bytes:
    """Assembles a filter that answers each call number with its error, and calls of a foreign ABI with ENOSYS."""
    foreign = _ERRNO | errno.ENOSYS
    program = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURES[os.uname().machine]),
        (_RETURN, 0, 0, foreign),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, foreign),
    ]
    for number, error in errors.items():
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def install(program: bytes) -> None:
    """Installs the filter in the calling thread: call it before the process starts others."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    arguments = [(_PR_SET_NO_NEW_PRIVS, 1, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))]
    for option, value, pointer in arguments:
        if libc.prctl(option, *map(ctypes.c_ulong, (value, pointer, 0, 0))):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
