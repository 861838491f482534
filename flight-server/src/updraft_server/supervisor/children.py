# SPDX-License-Identifier: Apache-2.0
"""How a pool's processes are started: which environment each gets, and that none outlives its parent."""

import functools
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from updraft_server.ipc.heartbeat import HeartbeatMonitor
from updraft_server.ipc.parent import parent_environment
from updraft_server.ipc.zygote_packets import LIFELINE_VARIABLE, LISTENER_VARIABLE, SETTINGS_VARIABLE, ZygoteSettings

# What a zygote and its workers inherit of the environment: nothing that could be a secret.
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
_WORKER_VARIABLES = {
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    # Or importing pyarrow starts a thread, in a process whose threads forks would lose.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# One exchange is one core's work; a library that starts threads when it is imported would also break the zygote.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_BACKLOG = 16


def zygote_listener(path: Path) -> socket.socket:
    """The socket at which every zygote of a pool is reached, one after the other: it outlives each of them."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    listener.listen(_BACKLOG)
    return listener


class Child:
    """A process of the pool, and the pipe on which it shows that it is not stuck."""

    def __init__(self, module: str, environment: Mapping[str, str], inherited_descriptors: Iterable[int] = ()) -> None:
        """Start `python -m module`, which follows its parent; it does not import from where it runs."""
        self._heartbeat = HeartbeatMonitor()
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
            [sys.executable, "-P", "-m", module],
            env={**environment, **parent_environment(), **self._heartbeat.environment},
            stdin=subprocess.DEVNULL,
            pass_fds=(*inherited_descriptors, self._heartbeat.writing),
        )
        self._heartbeat.started()
        self.pid = self._process.pid

    def is_stuck(self) -> bool:
        """True when it has not shown itself for too long; to be asked once every `heartbeat.INTERVAL_SECONDS`."""
        return self._heartbeat.is_stuck()

    def kill(self) -> None:
        """Send SIGKILL; who reaps children hears of its end."""
        self._process.kill()

    def reaped(self, code: int) -> None:
        """Note that it has ended, to whom it may concern."""
        self._process.returncode = code
        self._heartbeat.close()

    def end(self) -> None:
        """Kill and reap it, if that has not happened."""
        if self._process.returncode is None:
            self._process.kill()
            self.reaped(self._process.wait())


def start_zygote(settings: ZygoteSettings, listener: socket.socket) -> Child:
    """Start a zygote that serves `listener`."""
    environment = zygote_environment(os.environ)
    environment[SETTINGS_VARIABLE] = settings.encode()
    environment[LISTENER_VARIABLE] = str(listener.fileno())
    environment[LIFELINE_VARIABLE] = str(_lifeline())
    return Child("updraft_server.zygote.process", environment, [listener.fileno(), _lifeline()])


@functools.cache
def _lifeline() -> int:
    """A pipe that nobody writes to: it ends with this process, and workers with it.

    Their parent's death cannot tell them: a worker outlives its zygote.
    """
    reading, _held_open = os.pipe()
    return reading


def zygote_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a zygote and its workers."""
    kept = {name: inherited[name] for name in _KEPT_VARIABLES if name in inherited}
    threads = {name: inherited.get(name, "1") for name in _THREAD_VARIABLES}
    return kept | threads | _WORKER_VARIABLES
