# SPDX-License-Identifier: Apache-2.0
"""Preparation of a fork, and the child's first steps: of what it inherits from the zygote, it keeps only the memory."""

import contextlib
import faulthandler
import fcntl
import os
import signal
import socket
import traceback
from collections.abc import Callable
from typing import NoReturn

from updraft.service.lossy_streams import LossyFile
from updraft_server.ipc import worker_stack
from updraft_server.linux.process_control import adopt_orphans, end_group_with, name_process, no_core_dumps
from updraft_server.worker.model.channel import MODEL_CHANNEL

_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
_WORKER_SOCKET = 3
_WORKER_LIFELINE = 4
_WORKER_STACK = 5
_OUT_OF_THE_WAY = 64
_SO_SNDBUFFORCE = 32
_SO_PASSRIGHTS = 83


def become_worker(
    sock: socket.socket,
    output: int,
    stack: int,
    lifeline: int,
    close_others: Callable[[], None],
    enter_sandbox: Callable[[], None],
    run: Callable[[socket.socket], NoReturn],
    *,
    name: str = "updraft-worker",
    model_channel: socket.socket | None = None,
) -> NoReturn:
    """Turn this freshly forked process into a worker that has these descriptors and no others.

    `close_others` closes Python objects, not just their descriptors: an object that is garbage-collected later would
    close a descriptor that user code has opened under the same number. `model_channel` leads to models and becomes
    descriptor MODEL_CHANNEL.
    """
    try:
        os.setsid()
        name_process(name)
        # Daemons that functions start stay descendants of the worker, so that it finds them at the end of an exchange.
        adopt_orphans()
        no_core_dumps()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # The front reads this pipe, so printing may wait for it instead of losing output.
        LossyFile.waits = True
        close_others()
        kept = fcntl.fcntl(end_group_with(lifeline), fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
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
        # Register before session code runs. faulthandler writes stacks even while C code is stuck; Python's own signal
        # handlers would wait for that code.
        faulthandler.register(worker_stack.SIGNAL, _WORKER_STACK)
        # The sandbox refuses some of the calls above. A worker that cannot enter it runs nothing.
        enter_sandbox()
        os.closerange(_WORKER_STACK + 1 if model_channel_kept is None else MODEL_CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))
        run(socket.socket(fileno=_WORKER_SOCKET))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def socketpair() -> tuple[socket.socket, socket.socket]:
    """Return connected sockets for the front and the worker, with buffers for large frames."""
    ends = socket.socketpair()
    for end in ends:
        try:
            end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SOCKET_BUFFER_BYTES)
        except PermissionError:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
    # Keep the worker from passing descriptors to the front, which might block when it closes the last copy of one
    # (SO_LINGER). This needs Linux 6.16.
    with contextlib.suppress(OSError):
        ends[0].setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
    return ends


def pipe(descriptors: contextlib.ExitStack) -> tuple[int, int]:
    """Return the read end and the write end of a new pipe; `descriptors` will close both."""
    ends = os.pipe()
    for end in ends:
        descriptors.callback(os.close, end)
    return ends
