# SPDX-License-Identifier: Apache-2.0
"""User and mount namespaces: they give a process its own files in memory, its own terminals, and read-only files.

The process that makes a directory in memory can measure from outside how many bytes the directory holds. These bytes do
not count in the memory of any process until the process maps them.
"""

import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from updraft_server.linux.capabilities import SYS_ADMIN, held_capabilities, holds_capability
from updraft_server.linux.system_calls import ARCHITECTURES, call_number, checked, libc

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 1
_FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 6
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_NOEXEC = 0x1, 0x2, 0x4, 0x8
_OPEN_TREE_CLONE = 1
_AT_RECURSIVE = 0x8000
# struct mount_attr: attributes to set, attributes to clear, propagation, descriptor of the user namespace.
_MOUNT_ATTR = struct.Struct("QQQQ")
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_AT_FDCWD = -100
# Processes need few shared memory files and semaphores, and each inode costs the kernel a KiB.
_MOST_FILES = 65_536
# All devpts mounts except the machine's own, in all containers, share some 3,000 terminals (`kernel.pty.max` less
# `kernel.pty.reserve`).
_MOST_TERMINALS = 64


def enter_user_namespace_to_mount() -> bool:
    """Enter a user namespace, so that an ordinary user's process and its children may mount. Return whether they may.

    If the machine does not allow this, nothing changes. In the namespace, the ids of other users appear as the id of
    nobody, but access to these users' files does not change. The process must have one thread, and must not have hidden
    its memory yet.
    """
    if holds_capability(SYS_ADMIN):
        return True
    # A process with rights over other users' files would lose these rights.
    if os.geteuid() == 0 or held_capabilities() or not _works_in_a_child():
        return False
    _enter_user_namespace()
    return True


def new_memory(limit_bytes: int) -> int:
    """Return the descriptor of a new, empty tmpfs that is not mounted yet; raises OSError."""
    options = {"mode": "1777", "size": str(limit_bytes), "nr_inodes": str(_MOST_FILES)}
    return _new_file_system("tmpfs", options, _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV)


def mount_memory(memory: int, path: str) -> None:
    """Mount a tmpfs from `new_memory` over `path`, for this process and its children only; raises OSError."""
    _mount_for_oneself(memory, path)


def mount_terminals(path: str) -> None:
    """Mount new terminals over `path`, which is /dev/pts, for this process and its children; raises OSError.

    From then on, /dev/ptmx makes terminals in this mount, because the kernel uses the directory `pts` beside it.
    """
    # Since Linux 4.7, every mount of devpts has its own terminals.
    options = {"mode": "600", "ptmxmode": "666", "max": str(_MOST_TERMINALS)}
    terminals = _new_file_system("devpts", options, _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NOEXEC)
    try:
        _mount_for_oneself(terminals, path)
    finally:
        os.close(terminals)


def mount_read_only(writable: Iterable[str]) -> None:
    """Make all files read-only for this process and its children, except at and beneath the writable paths.

    The process cannot change rights, owners, times and extended attributes of read-only files either. Files that are
    already open stay as they are. Paths that do not exist are ignored. Raises OSError; needs Linux 5.12.
    """
    with contextlib.ExitStack() as opened:
        _separate_mounts()
        mounts: list[tuple[str, int]] = []
        # If one writable path is beneath another, the outer one must be mounted first, so that it does not cover the
        # inner one.
        for path in sorted({os.path.realpath(path) for path in writable}):
            with contextlib.suppress(FileNotFoundError):
                flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
                mount = _call("open_tree", _AT_FDCWD, os.fsencode(path), flags)
                opened.callback(os.close, mount)
                mounts.append((path, mount))
        attributes = _MOUNT_ATTR.pack(_MOUNT_ATTR_RDONLY, 0, 0, 0)
        _call("mount_setattr", _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, _MOUNT_ATTR.size)
        for path, mount in mounts:
            _move_mount(mount, path)
    # If the working directory is at or beneath a writable path, it still refers to the read-only mount. Enter it again.
    with contextlib.suppress(OSError):
        os.chdir(Path.cwd())


def memory_used_bytes(memory: int) -> int:
    """Return the bytes used in a directory that `new_memory` made."""
    room = os.fstatvfs(memory)
    return (room.f_blocks - room.f_bfree) * room.f_frsize


def _new_file_system(kind: str, options: Mapping[str, str], attributes: int) -> int:
    context = _call("fsopen", kind.encode(), _FSOPEN_CLOEXEC)
    try:
        for key, value in options.items():
            _call("fsconfig", context, _FSCONFIG_SET_STRING, key.encode(), value.encode(), 0)
        _call("fsconfig", context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _call("fsmount", context, _FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(context)


def _mount_for_oneself(file_system: int, path: str) -> None:
    _separate_mounts()
    _move_mount(file_system, path)


def _separate_mounts() -> None:
    checked(libc.unshare(_CLONE_NEWNS), "unshare")
    # Keep later mounts from propagating to other mount namespaces.
    checked(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount")


def _move_mount(mount: int, path: str) -> None:
    _call("move_mount", mount, b"", _AT_FDCWD, os.fsencode(path), _MOVE_MOUNT_F_EMPTY_PATH)


def _enter_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    # Making a file system, even before it is mounted, needs the right to mount in the current mount namespace.
    checked(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _works_in_a_child() -> bool:
    """Return whether a child can enter a user namespace and mount in it.

    Some machines let every user make a user namespace, but not mount in it. A process that has entered a namespace
    cannot leave it, so a child tries first.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _enter_user_namespace()
            mount_memory(new_memory(1 << 20), "/dev/shm")  # noqa: S108 - its own
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return status == 0


def _call(name: str, *arguments: int | bytes | None) -> int:
    number = call_number(name) if os.uname().machine in ARCHITECTURES else None
    if number is None:
        raise OSError(errno.ENOSYS, f"{name}: {os.strerror(errno.ENOSYS)}")
    wide = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *wide), name)
