# SPDX-License-Identifier: Apache-2.0
"""Landlock: a process keeps access to some paths and loses all others for good. Its children inherit these limits.

A rule allows rights at and beneath a path. Rules cannot forbid rights, so a path that must not be accessible may not be
beneath an allowed path. Open descriptors stay usable. No version so far covers `stat`, `chmod`, `chown`, or connecting
to a socket by its path.

`confine_files` is for Updraft's own helper processes. They cannot open, make, move or remove files outside the paths
that it allows.
"""

import ctypes
import os
import stat
from collections.abc import Iterable

from updraft_server.linux.system_calls import checked, libc

EXECUTE, WRITE_FILE, READ_FILE, READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIRECTORY, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_DIRECTORY, MAKE_FILE, MAKE_SOCKET, MAKE_PIPE, MAKE_LINK = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 12
REFER, TRUNCATE = 1 << 13, 1 << 14
"""Rights over files. REFER is the right to move or link a file from one directory to another."""

TCP_RIGHTS = 0b11
"""Rights to bind and to connect TCP sockets; rules for single ports are not supported here."""

SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1
"""Scopes: connections to abstract Unix sockets, and signals, reach only the process and its descendants."""

LEAST_VERSION = 2
"""Oldest supported Landlock version. Version 1 forbids moves and links across directories, which honest code makes."""

SCOPES_SINCE = 6
"""First version of Landlock that covers signals and abstract sockets."""

_TCP_SINCE = 4
# All rights over files that these versions know: 14 in version 2, and TRUNCATE since version 3. Version 5 added a right
# for commands to devices. Such commands stay allowed, because a terminal is a device.
_RIGHTS_OF_VERSION = {2: (1 << 14) - 1, 3: (1 << 15) - 1}
_RIGHTS_OVER_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("path", ctypes.c_int32))


def landlock_version() -> int:
    """Return the version of Landlock in this kernel; 0 without Landlock. Needs no right and changes nothing."""
    return max(int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)), 0)


class Ruleset:
    """Ruleset to be filled with rules, which allow files. If the kernel can, it closes TCP and scopes as a whole."""

    def __init__(self, *, tcp: int = 0, scopes: int = 0) -> None:
        """Create the ruleset; raises OSError on a kernel below LEAST_VERSION."""
        version = landlock_version()
        self._rights = _RIGHTS_OF_VERSION[min(max(version, LEAST_VERSION), max(_RIGHTS_OF_VERSION))]
        attributes = _Attributes(
            self._rights, tcp if version >= _TCP_SINCE else 0, scopes if version >= SCOPES_SINCE else 0
        )
        # Older kernels accept only the first field, or the first two.
        fields = 1 + (version >= _TCP_SINCE) + (version >= SCOPES_SINCE)
        size = ctypes.c_size_t(fields * ctypes.sizeof(ctypes.c_uint64))
        self._descriptor = checked(libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0), "landlock")

    def __enter__(self) -> "Ruleset":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def allow(self, path: str, rights: int) -> None:
        """Allow `rights` at and beneath `path`, without following `path` if it is a link; raises OSError."""
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _RIGHTS_OVER_A_FILE
            rule = _PathRule(rights & self._rights, descriptor)
            checked(libc.syscall(_ADD_RULE, self._descriptor, _RULE_PATH_BENEATH, ctypes.byref(rule), 0), "landlock")
        finally:
            os.close(descriptor)

    def restrict_self(self) -> None:
        """Enforce the rules from now on, for this thread alone.

        The process must have no other thread, and must have given up new privileges.
        """
        checked(libc.syscall(_RESTRICT_SELF, self._descriptor, 0), "landlock")


_READABLE = READ_FILE | READ_DIRECTORY
_WRITABLE = WRITE_FILE | REMOVE_DIRECTORY | REMOVE_FILE | MAKE_DIRECTORY | MAKE_FILE | MAKE_LINK | REFER | TRUNCATE


def can_confine_files() -> bool:
    """Return whether this kernel supports `confine_files`."""
    return landlock_version() >= LEAST_VERSION


def confine_files(*, readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Confine this process for good. Return False if the kernel cannot do that.

    The process must have given up new privileges. It may then make links and plain files in writable directories, and
    devices, sockets and pipes nowhere. From version 4 of Landlock, it cannot bind or connect TCP sockets. From version
    6, it can signal only itself and processes that it starts, and cannot connect to abstract sockets of other
    processes. Open descriptors stay usable.
    """
    if not can_confine_files():
        return False
    with Ruleset(tcp=TCP_RIGHTS, scopes=SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS) as rules:
        for directory in readable:
            rules.allow(os.path.realpath(directory), _READABLE)
        for directory in writable:
            rules.allow(os.path.realpath(directory), _READABLE | _WRITABLE)
        rules.restrict_self()
    return True
