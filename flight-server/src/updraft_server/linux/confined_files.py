# SPDX-License-Identifier: Apache-2.0
"""Confinement of a process to a few directories: files elsewhere cannot be opened, made, moved or removed."""

import os
from collections.abc import Iterable

from updraft_server.linux.landlock import (
    LEAST_VERSION,
    MAKE_DIRECTORY,
    MAKE_FILE,
    MAKE_LINK,
    READ_DIRECTORY,
    READ_FILE,
    REFER,
    REMOVE_DIRECTORY,
    REMOVE_FILE,
    SCOPE_ABSTRACT_SOCKETS,
    SCOPE_SIGNALS,
    TCP_RIGHTS,
    TRUNCATE,
    WRITE_FILE,
    Ruleset,
    landlock_version,
)

_READ = READ_FILE | READ_DIRECTORY
_WRITE = WRITE_FILE | REMOVE_DIRECTORY | REMOVE_FILE | MAKE_DIRECTORY | MAKE_FILE | MAKE_LINK | REFER | TRUNCATE


def can_confine_files() -> bool:
    """Return whether this kernel has what `confine_files` needs."""
    return landlock_version() >= LEAST_VERSION


def confine_files(*, readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Confine this process for good; returns False if the kernel cannot. New privileges must have been given up.

    Links and plain files may be made in writable directories; devices, sockets and pipes nowhere. From version 4 of
    Landlock the process cannot bind or connect TCP sockets either. From version 6 it signals only itself and what it
    starts, and does not connect to abstract sockets of others. Open descriptors stay usable.
    """
    if not can_confine_files():
        return False
    with Ruleset(tcp=TCP_RIGHTS, scopes=SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS) as rules:
        for directory in readable:
            rules.allow(os.path.realpath(directory), _READ)
        for directory in writable:
            rules.allow(os.path.realpath(directory), _READ | _WRITE)
        rules.restrict_self()
    return True
