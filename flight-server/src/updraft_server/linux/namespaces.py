# SPDX-License-Identifier: Apache-2.0
"""Namespaces of user ids and of mounts: how a process gets a directory in memory that no other one sees."""

import ctypes
import os
from pathlib import Path

from updraft_server.linux.capabilities import SYS_ADMIN, held_capabilities, holds_capability

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
# Shared memory and semaphores are few; an inode costs the kernel a KiB.
_MOST_FILES = 65_536

_libc = ctypes.CDLL(None, use_errno=True)


def enter_user_namespace_to_mount() -> bool:
    """Let an ordinary user's process and its children mount for themselves, if this machine allows it; else nothing.

    Ids of other users than the process's own read as those of nobody from then on; what it may do with their files
    stays as it was. Needs a process with one thread whose memory is not hidden yet. False: it may not mount.
    """
    if holds_capability(SYS_ADMIN):
        return True
    # Whoever may do more with the files of others would lose that.
    if os.geteuid() == 0 or held_capabilities() or not _works_in_a_child():
        return False
    _enter_user_namespace()
    return True


def mount_memory(path: str, limit_bytes: int) -> None:
    """Mount an empty directory in memory over `path`, which only this process and its children see; raises OSError."""
    _checked(_libc.unshare(_CLONE_NEWNS), "unshare")
    # Nothing that is mounted here reaches others.
    _checked(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount")
    options = f"mode=1777,size={limit_bytes},nr_inodes={_MOST_FILES}"
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    _checked(_libc.mount(b"updraft", os.fsencode(path), b"tmpfs", flags, options.encode()), f"mount {path}")


def _enter_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    _checked(_libc.unshare(_CLONE_NEWUSER), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _works_in_a_child() -> bool:
    """Some machines let anybody make a user namespace, and nobody mount in it: there is no way back from that."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _enter_user_namespace()
            mount_memory("/dev/shm", 1 << 20)  # noqa: S108 - its own
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return status == 0


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
