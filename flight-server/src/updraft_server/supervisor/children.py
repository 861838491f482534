# SPDX-License-Identifier: Apache-2.0
"""Start of a pool's processes: their environment, and the pipe that makes workers end with their supervisor."""

import functools
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from updraft_server.ipc.zygote_packets import (
    LIFELINE_VARIABLE,
    SUPERVISOR_VARIABLE,
    ZYGOTE_SETTINGS_VARIABLE,
    ZygoteSettings,
)
from updraft_server.linux.resource_limits import allow_more_than
from updraft_server.supervisor.zygote_child import ZygoteChild

# Variables that a zygote and its workers inherit: none that could hold a secret.
_KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
)
_WORKER_VARIABLES = {
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    # Otherwise importing pyarrow starts a thread, which forks would lose.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# One exchange is one core's work; a library that starts threads when it is imported would also break the zygote.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_BACKLOG = 16
_GROUP_MAY_CONNECT = 0o660


def control_listener(path: Path) -> socket.socket:
    """Return the socket at which the workers' side reaches one front after the other; it outlives all of them."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A predecessor that was killed has left its socket behind.
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    # The workers' side may be another user of the same group; only the first to connect is accepted.
    path.chmod(_GROUP_MAY_CONNECT)
    listener.listen(_BACKLOG)
    return listener


def start_zygote(settings: ZygoteSettings, zygote_socket: socket.socket) -> ZygoteChild:
    """Start a zygote that serves the fronts that come over `zygote_socket`."""
    allow_more_than(settings.worker.worker_descriptors)
    environment = zygote_environment(os.environ)
    environment[ZYGOTE_SETTINGS_VARIABLE] = settings.encode()
    environment[SUPERVISOR_VARIABLE] = str(zygote_socket.fileno())
    lifeline = _lifeline(settings.workers_directory)
    environment[LIFELINE_VARIABLE] = str(lifeline)
    return ZygoteChild(environment, [zygote_socket.fileno(), lifeline])


@functools.cache
def _lifeline(directory: str) -> int:
    """Return the read end of a pipe that is never written to. It ends with this process, and the workers end with it.

    Workers outlive the zygote, their parent, so its death must not end them. A process that could write to the pipe
    would end all workers at once. Any holder of the read end of an unnamed pipe can open it for writing
    (/proc/self/fd), past Landlock. That is impossible for a pipe made in a directory that is hidden from workers.
    """
    path = Path(directory, "lifeline")
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    try:
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        _held_open = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    finally:
        path.unlink()
    return reading


def zygote_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a zygote and its workers."""
    kept = {name: inherited[name] for name in _KEPT_VARIABLES if name in inherited}
    threads = {name: inherited.get(name, "1") for name in _THREAD_VARIABLES}
    return kept | threads | _WORKER_VARIABLES
