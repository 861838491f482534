# SPDX-License-Identifier: Apache-2.0
"""Forks of a zygote, and the first steps of the child, which keeps the zygote's memory but closes its descriptors."""

import contextlib
import faulthandler
import fcntl
import functools
import os
import signal
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

from updraft.service.lossy_streams import LossyFile
from updraft_server.ipc.zygote_packets import STACK_SIGNAL
from updraft_server.linux.out_of_memory import OutOfMemoryScore
from updraft_server.linux.process_control import adopt_orphans, end_group_with, name_process, no_core_dumps
from updraft_server.sandbox.worker_sandbox import WorkerSandbox
from updraft_server.worker.model.channel import MODEL_CHANNEL
from updraft_server.zygote.scratch import ScratchDirectories

_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
_WORKER_SOCKET = 3
_WORKER_LIFELINE = 4
_WORKER_STACK = 5
_OUT_OF_THE_WAY = 64
_SO_SNDBUFFORCE = 32
_SO_PASSRIGHTS = 83


class ForkedProcess(NamedTuple):
    """Process that has just been forked."""

    pid: int
    pidfd: int
    shared_memory: int | None
    """Descriptor of the process's own /dev/shm; None if it has none."""
    output: int
    """Read end of the pipe for the process's output. The caller's ExitStack closes this end and `stack`."""
    stack: int
    """Read end of the pipe for the process's stacks."""


class Forks:
    """Maker of forked processes, each with a sandbox, a scratch directory, and pipes for its output and its stacks."""

    def __init__(
        self,
        scratch: ScratchDirectories,
        sandbox: WorkerSandbox,
        score: OutOfMemoryScore,
        lifeline: int,
        close_others: Callable[[], None],
    ) -> None:
        """Prepare to fork.

        Args:
            scratch: Makes a directory for each process.
            sandbox: Entered in each process.
            score: Makes the kernel kill forked processes before the zygote when memory runs out.
            lifeline: Lifeline to the supervisor.
            close_others: Closes the Python objects whose descriptors a forked process must not have. Closing only the
                descriptors is not enough: an object that is garbage-collected later would close a descriptor that user
                code has opened under the same number.
        """
        self._scratch = scratch
        self._sandbox = sandbox
        self._score = score
        self._lifeline = lifeline
        self._close_others = close_others

    def fork(
        self,
        name: str,
        sock: socket.socket,
        front_pid: int,
        run: Callable[[Path, socket.socket], NoReturn],
        descriptors: contextlib.ExitStack,
        *,
        title: str = "updraft-worker",
        model_channel: socket.socket | None = None,
    ) -> ForkedProcess:
        """Fork a process that calls `run` with its scratch directory and `sock`; on OSError, nothing is left behind.

        Args:
            name: Id of the process, which names its scratch directory.
            sock: Socket that the process keeps.
            front_pid: Process id of the process's front; 0 if the front is in another PID namespace.
            run: Called in the forked process.
            descriptors: Closes the ends of pipes in the calling process.
            title: Name of the process in process lists.
            model_channel: Worker's end of its model channel, which becomes descriptor MODEL_CHANNEL; None without
                models.
        """
        with contextlib.ExitStack() as undo:
            scratch = self._scratch.make(name)
            undo.callback(self._scratch.discard, name)
            output, output_write = _pipe(descriptors)
            stack, stack_write = _pipe(descriptors)
            shared_memory = self._sandbox.new_shared_memory()
            if shared_memory is not None:
                undo.callback(os.close, shared_memory)
            with self._score.raised():
                pid = os.fork()
            if pid == 0:
                self._become_worker(
                    sock,
                    output_write,
                    stack_write,
                    lambda: self._sandbox.enter(front_pid, shared_memory, scratch),
                    functools.partial(run, scratch),
                    title,
                    model_channel,
                )
            # If this fails, the zygote later kills the child as an orphan.
            pidfd = os.pidfd_open(pid)
            undo.pop_all()
        return ForkedProcess(pid, pidfd, shared_memory, output, stack)

    def _become_worker(
        self,
        sock: socket.socket,
        output: int,
        stack: int,
        enter_sandbox: Callable[[], None],
        run: Callable[[socket.socket], NoReturn],
        title: str,
        model_channel: socket.socket | None,
    ) -> NoReturn:
        """Turn this freshly forked process into a worker that has only the given descriptors."""
        try:
            os.setsid()
            name_process(title)
            # A daemon started by a function becomes a child of the worker, which finds it at the end of the exchange.
            adopt_orphans()
            no_core_dumps()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            # The front reads this pipe, so a print may wait until the pipe has room instead of losing output.
            LossyFile.waits = True
            self._close_others()
            kept = fcntl.fcntl(end_group_with(self._lifeline), fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
            stack_kept = fcntl.fcntl(stack, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
            # A function that fills the pipe must not make the worker wait inside a signal handler.
            os.set_blocking(stack_kept, False)
            model_channel_kept = (
                None
                if model_channel is None
                else fcntl.fcntl(model_channel.detach(), fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
            )
            os.dup2(sock.detach(), _WORKER_SOCKET, inheritable=False)
            os.dup2(kept, _WORKER_LIFELINE, inheritable=False)
            os.dup2(stack_kept, _WORKER_STACK, inheritable=False)
            if model_channel_kept is not None:
                os.dup2(model_channel_kept, MODEL_CHANNEL, inheritable=False)
            # Register before session code runs. faulthandler writes stacks even while C code is stuck. A signal handler
            # in Python would wait for that code.
            faulthandler.register(STACK_SIGNAL, _WORKER_STACK)
            # Enter the sandbox only now, because it refuses some of the calls above. If the worker cannot enter the
            # sandbox, it exits without running a function.
            enter_sandbox()
            os.closerange(
                _WORKER_STACK + 1 if model_channel_kept is None else MODEL_CHANNEL + 1, os.sysconf("SC_OPEN_MAX")
            )
            run(socket.socket(fileno=_WORKER_SOCKET))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)


def socketpair() -> tuple[socket.socket, socket.socket]:
    """Return connected sockets for the front and the worker, with buffers for large frames."""
    ends = socket.socketpair()
    for end in ends:
        enlarge_buffer(end, _SOCKET_BUFFER_BYTES)
    refuse_descriptors(ends[0])
    return ends


def enlarge_buffer(end: socket.socket, size_bytes: int) -> None:
    """Enlarge the send buffer to `size_bytes`, so that neither side waits for the other in the middle of a batch."""
    try:
        end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, size_bytes)
    except PermissionError:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)


def refuse_descriptors(end: socket.socket) -> None:
    """Keep the other side from passing descriptors to this end.

    Otherwise the other side could pass a socket that lingers (SO_LINGER), and this process might block when it closes
    the last copy of that socket. Refusing descriptors needs Linux 6.16.
    """
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def _pipe(descriptors: contextlib.ExitStack) -> tuple[int, int]:
    """Return the read end and the write end of a new pipe; `descriptors` will close both."""
    ends = os.pipe()
    for end in ends:
        descriptors.callback(os.close, end)
    return ends
