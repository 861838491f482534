# SPDX-License-Identifier: Apache-2.0
"""Sandbox that every worker enters first. The worker gives up capabilities, some system calls and any new privileges.

The zygote creates the sandbox once and tries it in a child process, because kernels, container runtimes and their
sandboxes differ in ways that version numbers do not show. Every worker applies the layers that worked in the trial. If
one of these layers fails in a worker, the worker exits.
"""

import ctypes
import errno
import json
import os
import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from updraft.container_memory import memory_limits
from updraft_server import sandbox_layers as layers
from updraft_server.linux import landlock, seccomp
from updraft_server.linux.capabilities import give_up_capabilities, held_capabilities
from updraft_server.linux.namespaces import mount_memory, mount_read_only, mount_terminals, new_memory
from updraft_server.linux.process_control import forbid_new_privileges, hide_memory, is_memory_hidden
from updraft_server.linux.system_calls import ARCHITECTURES, call_number
from updraft_server.sandbox import refused_calls as calls
from updraft_server.sandbox.owner_files import SharedMemoryUse
from updraft_server.sandbox.shared_mappings import are_shared_mappings_refused, keep_in_files, keep_private

_INIT_PID = 1


class WorkerSandbox:
    """Sandbox that the zygote creates and each worker enters."""

    def __init__(
        self,
        *,
        restricted: bool = False,
        shared_memory: str = "machine",
        writable_paths: Sequence[str] | None = None,
    ) -> None:
        """Find out which layers are available.

        Args:
            restricted: Whether to refuse network and subprocesses to workers.
            shared_memory: Value of the setting --shared-memory: which /dev/shm workers use.
            writable_paths: Paths where workers may write, in addition to their own; None allows all paths.
        """
        self._pool = calls.pool_processes()
        self._shared_memory = shared_memory
        self._writable_paths = writable_paths
        # Half of the container's memory. The kernel's default size of a /dev/shm is half of the machine's memory.
        self._shared_memory_bytes = min(memory_limits().values()) // 2
        self._restricted = restricted
        rules = [*calls.refused_calls(), *(calls.restricted_calls() if restricted else ())]
        if are_shared_mappings_refused():
            rules.extend(calls.shared_mappings())
        has_filters = os.uname().machine in ARCHITECTURES
        self._filter = seccomp.Filter(rules) if has_filters else None
        self.layers: Sequence[layers.SandboxLayer] = [layers.SandboxLayer(name) for name in layers.NEEDS]
        self.layers = [layers.SandboxLayer(name, lack) for name, lack in _tried_in_a_child(self._try_layers).items()]
        if has_filters and not self.terminals:
            self._filter = seccomp.Filter([*rules, *calls.new_terminals()])

    @property
    def shared_memory(self) -> SharedMemoryUse:
        """Session functions that may use /dev/shm.

        If workers share a /dev/shm that only this pool uses (`pool`), the pool removes files that functions leave
        there. The /dev/shm of a machine (`machine`) contains other users' files.
        """
        if self.has_own_shared_memory or self._shared_memory == "machine":
            return SharedMemoryUse.ALL
        if self._restricted:
            return SharedMemoryUse.NONE
        return SharedMemoryUse.ALL if self._shared_memory == "pool" else SharedMemoryUse.OF_NO_TENANT

    @property
    def has_own_shared_memory(self) -> bool:
        """Whether each worker has its own /dev/shm."""
        return self._has(layers.SHARED_MEMORY)

    @property
    def terminals(self) -> bool:
        """Whether each worker has its own terminals. Functions may not use any other terminals."""
        return self._has(layers.TERMINALS)

    @property
    def refuses_shared_mappings(self) -> bool:
        """Whether workers need a file to share memory. Module `shared_mappings` provides the file."""
        return are_shared_mappings_refused() and any(
            layer.name == layers.SECCOMP and layer.is_on for layer in self.layers
        )

    def new_shared_memory(self) -> int | None:
        """Return the descriptor of a new /dev/shm for one worker, or None if all workers share one; raises OSError."""
        return new_memory(self._shared_memory_bytes) if self.has_own_shared_memory else None

    def enter(self, front_pid: int, shared_memory: int | None = None, scratch: Path | None = None) -> None:
        """Confine this newly forked worker for good; raises OSError.

        Args:
            front_pid: Process id of the worker's front; 0 if it is in another PID namespace.
            shared_memory: Descriptor from `new_shared_memory`.
            scratch: The worker's own directory.
        """
        forbid_new_privileges()
        for layer in self.layers:
            if layer.is_on:
                self._apply(layer.name, front_pid, shared_memory, scratch)
        if self.refuses_shared_mappings:
            if self._restricted:
                keep_private()
            else:
                keep_in_files()

    def _apply(self, layer: str, front_pid: int, shared_memory: int | None = None, scratch: Path | None = None) -> None:
        """Apply one layer. Landlock and the restricted profile need nothing here.

        A worker applies Landlock when it is bound to its owner (`owner_files`). The restricted profile is part of the
        filter.
        """
        # The order of the layers matters. Mounts are first, because mounting needs a capability. The read-only mount
        # is before the writable mounts, which cover parts of it.
        if layer == layers.READ_ONLY_FILES:
            writable = [*(self._writable_paths or ()), layers.SHARED_MEMORY_PATH]
            mount_read_only(writable if scratch is None else [*writable, str(scratch)])
        elif layer == layers.SHARED_MEMORY:
            memory = new_memory(self._shared_memory_bytes) if shared_memory is None else shared_memory
            mount_memory(memory, layers.SHARED_MEMORY_PATH)
        elif layer == layers.TERMINALS:
            mount_terminals(layers.TERMINALS_PATH)
        elif layer == layers.HIDDEN_MEMORY:
            hide_memory()
        elif layer == layers.CAPABILITIES:
            give_up_capabilities()
        elif layer == layers.SECCOMP:
            self._refuse_calls(front_pid)

    def _has(self, name: str) -> bool:
        return any(layer.name == name and layer.is_on for layer in self.layers)

    def _refuse_calls(self, front_pid: int) -> None:
        if self._filter is None:
            raise OSError(errno.ENOSYS, f"seccomp: filters for {os.uname().machine} are not known")
        own = {calls.OWN_PID: os.getpid(), calls.FRONT_PID: front_pid or _INIT_PID}
        seccomp.install(self._filter.filled(**self._pool, **own))

    def _try_layers(self) -> Mapping[str, str]:
        """Try every layer, and return what each layer lacks. Called in a child process that then exits."""
        forbid_new_privileges()
        return {layer.name: self._lack(layer.name) for layer in self.layers}

    def _lack(self, layer: str) -> str:
        if layer == layers.RESTRICTED and not self._restricted:
            return "the profile of the pool is compatible"
        if layer == layers.READ_ONLY_FILES and self._writable_paths is None:
            return "the pool runs no session functions"
        if layer == layers.SHARED_MEMORY and self._shared_memory == "machine":
            return "--shared-memory is machine"
        try:
            self._apply(layer, 0)
        except OSError as error:
            return f"{error.strerror}: it needs {layers.NEEDS[layer]}"
        problem = _PROBLEMS[layer]()
        return f"{problem}: it needs {layers.NEEDS[layer]}" if problem else ""


def restrict() -> None:
    """Refuse network and subprocesses to this single-threaded process for good; raises OSError."""
    seccomp.install(seccomp.Filter(calls.restricted_calls()).filled())
    if problem := _restriction_problem():
        raise OSError(errno.ENOSYS, f"{problem}: it needs {layers.NEEDS[layers.RESTRICTED]}")


def _calls_problem() -> str:
    if not seccomp.is_filtered():
        return "the kernel accepted the filter but does not use it"
    number = call_number("pidfd_send_signal")
    libc = ctypes.CDLL(None, use_errno=True)
    # Without a filter, the call would fail with EBADF. A kernel that does not know the call also answers ENOSYS.
    libc.syscall(number, -1, 0, None, 0)
    return "" if ctypes.get_errno() == errno.ENOSYS else "the kernel accepted the filter but does not enforce it"


def _capabilities_problem() -> str:
    held = held_capabilities()
    return f"the service was given ambient capabilities ({held:#x}), which its workers keep" if held else ""


def _memory_problem() -> str:
    return "" if is_memory_hidden() else "the kernel does not hide a process's memory"


def _files_problem() -> str:
    return "" if landlock.landlock_version() >= landlock.LEAST_VERSION else "this kernel has no usable Landlock"


def _scopes_problem() -> str:
    if landlock.landlock_version() >= landlock.SCOPES_SINCE:
        return ""
    return "this kernel's Landlock does not cover signals and abstract sockets"


def _restriction_problem() -> str:
    try:
        socket.socket(socket.AF_UNIX).close()
    except PermissionError:
        return ""
    return "there is no filter of system calls"


def _read_only_files_problem() -> str:
    return "" if os.statvfs("/").f_flag & os.ST_RDONLY else "the file system is still writable"


def _unmounted(path: str) -> str:
    return "" if os.path.ismount(path) else f"{path} is not mounted"


_PROBLEMS: Mapping[str, Callable[[], str]] = {
    layers.READ_ONLY_FILES: _read_only_files_problem,
    layers.SHARED_MEMORY: lambda: _unmounted(layers.SHARED_MEMORY_PATH),
    layers.TERMINALS: lambda: _unmounted(layers.TERMINALS_PATH),
    layers.SECCOMP: _calls_problem,
    layers.CAPABILITIES: _capabilities_problem,
    layers.HIDDEN_MEMORY: _memory_problem,
    layers.LANDLOCK: _files_problem,
    layers.LANDLOCK_SCOPES: _scopes_problem,
    layers.RESTRICTED: _restriction_problem,
}


def _tried_in_a_child(trial: Callable[[], Mapping[str, str]]) -> Mapping[str, str]:
    """Run the trial in a child process and return its result; raises RuntimeError if the child does not answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(trial()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        raise RuntimeError("the trial of the workers' sandbox failed: the pool cannot tell which layers are on")
    lacks: Mapping[str, str] = json.loads(answer)
    return lacks
