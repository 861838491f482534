# SPDX-License-Identifier: Apache-2.0
"""Landlock, for a process that needs one directory: what lies elsewhere cannot be opened, made, moved or removed."""

import ctypes
import os
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIRECTORY, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIRECTORY, _MAKE_FILE, _MAKE_LINK = 1 << 7, 1 << 8, 1 << 12
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_READ = _READ_FILE | _READ_DIRECTORY
_WRITE = _WRITE_FILE | _REMOVE_DIRECTORY | _REMOVE_FILE | _MAKE_DIRECTORY | _MAKE_FILE | _MAKE_LINK | _REFER | _TRUNCATE
# Every right over files that the first versions know: 13, with REFER 14, with TRUNCATE 15.
_RIGHTS_OF_VERSION = {2: (1 << 14) - 1, 3: (1 << 15) - 1}
_NETWORK_RIGHTS, _NETWORK_VERSION = 0b11, 4
# Below it no link may cross directories, which an honest archive's links do.
_LEAST_VERSION = 2

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("directory", ctypes.c_int32))


def can_confine_files() -> bool:
    """Whether this kernel has what `confine_files` needs."""
    return _version() >= _LEAST_VERSION


def confine_files(*, readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Confine this process for good; False: this kernel cannot. The process must have given up new privileges.

    Links and plain files may be made in writable directories, devices, sockets and pipes nowhere. From version 4 of
    Landlock the process cannot bind or connect TCP either. Descriptors that are open stay usable.
    """
    version = _version()
    if version < _LEAST_VERSION:
        return False
    rights = _RIGHTS_OF_VERSION[min(version, max(_RIGHTS_OF_VERSION))]
    rules = _Ruleset(rights, _NETWORK_RIGHTS if version >= _NETWORK_VERSION else 0)
    size = ctypes.sizeof(rules) if version >= _NETWORK_VERSION else ctypes.sizeof(ctypes.c_uint64)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0))
    try:
        for directory in readable:
            _allow(ruleset, directory, _READ & rights)
        for directory in writable:
            _allow(ruleset, directory, (_READ | _WRITE) & rights)
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _version() -> int:
    """Of Landlock; less than zero without it."""
    return int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))


def _allow(ruleset: int, directory: str, rights: int) -> None:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        rule = _PathRule(rights, descriptor)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"landlock: {os.strerror(number)}")
    return result
