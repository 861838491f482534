# SPDX-License-Identifier: Apache-2.0
"""Landlock: a process allows itself paths, and loses every other one for good; its children inherit that.

Rules name what is allowed at and beneath a path. There is none that forbids: what has to stay out of reach may not lie
beneath anything that is allowed. Descriptors that are open stay usable. `stat`, `chmod`, `chown`, and connecting to a
socket by its path are not covered by any version so far.
"""

import ctypes
import os
import stat

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIRECTORY, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_DIRECTORY, MAKE_FILE, MAKE_SOCKET, MAKE_PIPE, MAKE_LINK = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 12
REFER, TRUNCATE = 1 << 13, 1 << 14
"""Rights over files. REFER moves and links a file from one directory to another."""

TCP_RIGHTS = 0b11
"""To bind and to connect; there are no rules for single ports here."""

SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1
"""What stays among the process and its descendants: connections to abstract Unix sockets, and signals."""

LEAST_VERSION = 2
"""Of Landlock: version 1 lets nothing be moved or linked across directories, which honest code does."""

SCOPES_SINCE = 6
"""Of Landlock: below it signals and abstract sockets are not covered."""

_TCP_SINCE = 4
# Every right over files that the first versions know: 14 of them, then TRUNCATE. Commands to devices, since version 5,
# are left alone: a terminal is one.
_RIGHTS_OF_VERSION = {2: (1 << 14) - 1, 3: (1 << 15) - 1}
_RIGHTS_OVER_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("path", ctypes.c_int32))


def landlock_version() -> int:
    """What this kernel has; 0 without Landlock. Needs no right and changes nothing."""
    return max(int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)), 0)


class Ruleset:
    """Rules in the making. Files need rules; TCP and scopes are closed as a whole, where the kernel can do that."""

    def __init__(self, *, tcp: int = 0, scopes: int = 0) -> None:
        """Raises OSError on a kernel below LEAST_VERSION."""
        version = landlock_version()
        self._rights = _RIGHTS_OF_VERSION[min(max(version, LEAST_VERSION), max(_RIGHTS_OF_VERSION))]
        attributes = _Attributes(
            self._rights, tcp if version >= _TCP_SINCE else 0, scopes if version >= SCOPES_SINCE else 0
        )
        # An older kernel knows fewer fields.
        fields = 1 + (version >= _TCP_SINCE) + (version >= SCOPES_SINCE)
        size = ctypes.c_size_t(fields * ctypes.sizeof(ctypes.c_uint64))
        self._descriptor = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0))

    def __enter__(self) -> "Ruleset":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def allow(self, path: str, rights: int) -> None:
        """Allow `rights` at and beneath `path`, which is not followed if it is a link; raises OSError."""
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _RIGHTS_OVER_A_FILE
            rule = _PathRule(rights & self._rights, descriptor)
            _checked(_libc.syscall(_ADD_RULE, self._descriptor, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))
        finally:
            os.close(descriptor)

    def restrict_self(self) -> None:
        """Hold to the rules from now on, with this thread alone: the process must have no other, and must have given
        up new privileges."""
        _checked(_libc.syscall(_RESTRICT_SELF, self._descriptor, 0))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"landlock: {os.strerror(number)}")
    return result
