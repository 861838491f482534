# SPDX-License-Identifier: Apache-2.0
"""Landlock rules that limit the files a worker can use when it runs session code. A worker cannot lift its rules.

Everything stays readable except the paths that the pool hides, because models and data may be anywhere, and functions
read them as in Spark's own worker. Functions can write to the scratch directory, which is also the working directory
(like an executor's directory for Spark's workers), to the operator's `writable_paths`, to /dev/shm and to devices.
Unlike on stock Spark, /tmp is not writable, because all owners would share /tmp and could reach each other's files. An
operator who accepts this risk can add /tmp to `writable_paths`. A worker can use its own terminals or none, because
somebody may be typing at the terminals of the pool's user.

Landlock rules can allow paths but not forbid them. So to hide a path, the rules allow every other entry that the
directories above the path contain when the worker is bound to its owner. Functions cannot list the directories above a
hidden path, and cannot read files that are put into those directories later.
"""

import contextlib
import enum
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.linux import landlock
from updraft_server.linux.process_control import forbid_new_privileges
from updraft_server.sandbox_layers import SHARED_MEMORY_PATH, TERMINALS_PATH

_READ = landlock.EXECUTE | landlock.READ_FILE | landlock.READ_DIRECTORY
_MAKE = landlock.MAKE_DIRECTORY | landlock.MAKE_FILE | landlock.MAKE_SOCKET | landlock.MAKE_PIPE | landlock.MAKE_LINK
_WRITE = (
    _READ
    | landlock.WRITE_FILE
    | landlock.TRUNCATE
    | _MAKE
    | landlock.REMOVE_DIRECTORY
    | landlock.REMOVE_FILE
    | landlock.REFER
)
_DEVICE = landlock.READ_FILE | landlock.READ_DIRECTORY | landlock.WRITE_FILE | landlock.TRUNCATE
# Semaphores and shared memory are plain files with unguessable names. These rights do not include listing the files.
_SHARED_MEMORY = (
    landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE | landlock.MAKE_FILE | landlock.REMOVE_FILE
)

_DEVICES = "/dev"
# /dev/zero. A process that may write to /dev/zero can map it as shared memory. Once unmapped, this memory may still
# exist, but is counted for no process.
_ZEROS = os.makedev(1, 5)
# Devices that control or observe the whole machine: consoles, serial lines, console screens, keyboards and mice,
# memory, I/O ports, and the kernel's log.
_REFUSED_MAJORS = frozenset({4, 7, 13})
_REFUSED_DEVICES = frozenset({os.makedev(5, 1), *(os.makedev(1, minor) for minor in (1, 2, 4, 11))})
# /dev/ptmx, which makes terminals.
_NEW_TERMINALS = os.makedev(5, 2)
# Major number of watchdogs (which restart the machine), simulated keyboards, page fault handlers and virtual machines.
# Devices that functions use, such as GPUs, have other major numbers. This number is refused only directly in /dev:
# subdirectories, such as the one for RDMA, may contain devices with this number.
_MISCELLANEOUS_MAJOR = 10
_PROJECTED = "..data"
"""Symbolic link in each Kubernetes volume of a secret. Other entries of the volume's directory lead to the secret too,
so the whole directory is hidden."""


class SharedMemoryUse(enum.Enum):
    """Choice of the session functions that may use /dev/shm."""

    ALL = enum.auto()
    OF_NO_TENANT = enum.auto()
    """Functions whose client names no tenant. Files in /dev/shm outlive their exchange, so the next tenant could read a
    tenant's files."""
    NONE = enum.auto()


class OwnerFiles:
    """Landlock rules of a pool's workers, which the zygote prepares once."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        shared_memory: SharedMemoryUse = SharedMemoryUse.ALL,
        terminals: bool = False,
    ) -> None:
        """Prepare the rules.

        Args:
            settings: Hidden, readable and writable paths.
            shared_memory: Session functions that may use /dev/shm.
            terminals: Whether each worker has its own terminals in /dev/pts and may use them.
        """
        self._settings = settings
        self._shared_memory = shared_memory
        self._devices = [
            (path, landlock.READ_FILE if found.st_rdev == _ZEROS else _DEVICE)
            for path, found in _usable_devices()
            if terminals or not (path == TERMINALS_PATH or found.st_rdev == _NEW_TERMINALS)
        ]

    def confine(self, scratch: Path, artifacts: str = "", tenant: str = "") -> bool:
        """Confine this process for good, with `scratch` as its working directory. Return False without Landlock.

        The directory `artifacts` is readable although the pool hides it. If another directory later replaces
        `artifacts` at this path, that other directory is not readable. Confining needs no privilege. With version 6 of
        Landlock, the process can signal only itself and its descendants, and can connect only to their abstract
        sockets.

        Raises:
            OSError: The process has several threads, and the other threads would not be confined.
        """
        _keep_relative_imports()
        scratch = scratch.resolve()
        os.chdir(scratch)
        if landlock.landlock_version() < landlock.LEAST_VERSION:
            return False
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            raise OSError(errno.EBUSY, "a process with several threads cannot be confined")
        forbid_new_privileges()
        with landlock.Ruleset(scopes=landlock.SCOPE_ABSTRACT_SOCKETS | landlock.SCOPE_SIGNALS) as rules:
            for path in surroundings([*self._settings.hidden_paths, _DEVICES]):
                _allow(rules, path, _READ)
            for path in filter(None, [*self._settings.readable_paths, artifacts]):
                _allow(rules, os.path.realpath(path), _READ)
            for path, rights in self._devices:
                _allow(rules, path, rights)
            if self._may_share_memory(tenant):
                _allow(rules, os.path.realpath(SHARED_MEMORY_PATH), _SHARED_MEMORY)
            for path in self._settings.writable_paths:
                _allow(rules, os.path.realpath(path), _WRITE)
            rules.allow(str(scratch), _WRITE)
            rules.restrict_self()
        return True

    def _may_share_memory(self, tenant: str) -> bool:
        is_of_no_tenant = self._shared_memory is SharedMemoryUse.OF_NO_TENANT and not tenant
        return self._shared_memory is SharedMemoryUse.ALL or is_of_no_tenant


def out_of_reach(paths: Iterable[str]) -> str | None:
    """Return the first of these paths that this process is not permitted to open, or None."""
    for path in filter(None, paths):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except PermissionError:
            return path
        except OSError:
            # The code that reads this path later reports a clearer error.
            continue
    return None


def surroundings(hidden: Iterable[str]) -> Iterator[str]:
    """Yield the fewest paths that cover the whole file system except the hidden paths and everything beneath them."""
    real = {os.path.realpath(_whole_secret(path)) for path in hidden}
    above = {str(parent) for path in real for parent in Path(path).parents}
    unseen = ["/"]
    while unseen:
        try:
            entries = os.scandir(unseen.pop())
        except OSError:
            # Without a listing, the entries to allow are unknown.
            continue
        with entries:
            for entry in entries:
                if entry.path in real or entry.is_symlink():
                    # Links need no rule, because Landlock checks a link's target. A link to a hidden path is useless.
                    continue
                if entry.path in above:
                    unseen.append(entry.path)
                else:
                    yield entry.path


def _whole_secret(path: str) -> str:
    directory = Path(path).absolute().parent
    return str(directory) if (directory / _PROJECTED).is_symlink() else path


def _usable_devices() -> Iterator[tuple[str, os.stat_result]]:
    """Yield devices such as null, random numbers, terminals and GPUs, but not disks, which hold other users' files."""
    for path, found in _found_in(_DEVICES):
        if path != SHARED_MEMORY_PATH and _is_usable(path, found):
            yield path, found


def _is_usable(path: str, found: os.stat_result) -> bool:
    if stat.S_ISDIR(found.st_mode):
        return not any(_is_the_machines(inner) for _, inner in _found_in(path))
    is_miscellaneous = os.major(found.st_rdev) == _MISCELLANEOUS_MAJOR
    return stat.S_ISCHR(found.st_mode) and not (is_miscellaneous or _is_the_machines(found))


def _is_the_machines(found: os.stat_result) -> bool:
    if not stat.S_ISCHR(found.st_mode):
        return stat.S_ISBLK(found.st_mode)
    return os.major(found.st_rdev) in _REFUSED_MAJORS or found.st_rdev in _REFUSED_DEVICES


def _found_in(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield entry.path, entry.stat(follow_symlinks=False)


def _allow(rules: landlock.Ruleset, path: str, rights: int) -> None:
    # The path may have disappeared, may be closed to this user anyway, or may be a mount that does not respond.
    with contextlib.suppress(OSError):
        rules.allow(path, rights)


def _keep_relative_imports() -> None:
    """Make Python's import paths absolute, so that they stay valid in another working directory and in children."""
    if path := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in path.split(os.pathsep))
    sys.path[:] = [str(Path(entry).absolute()) if entry else entry for entry in sys.path]
