# SPDX-License-Identifier: Apache-2.0
"""The process that workers are forked from: it has loaded what they need, and runs neither threads nor gRPC.

Started by `updraft_server.supervisor.supervisor` as `python -m updraft_server.zygote.process`. It serves any number of
fronts, one after the other in practice, and ends the workers of a front that goes away.
"""

import fcntl
import gc
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from updraft.service.allocator import retain_freed_batches
from updraft.service.lossy_streams import LossyFile, protect_standard_streams
from updraft_server.ipc.heartbeat import INTERVAL_SECONDS, Heartbeat
from updraft_server.ipc.zygote_packets import (
    EXIT_IMAGE_BROKEN,
    LIFELINE_VARIABLE,
    LISTENER_VARIABLE,
    MAX_PACKET_BYTES,
    SETTINGS_VARIABLE,
    Exited,
    Fork,
    Forked,
    ForkFailed,
    Hello,
    Packet,
    PacketError,
    ZygoteSettings,
    decode,
    encode,
)
from updraft_server.linux.process_control import die_first, end_group_with, kill_group, name_process, no_core_dumps
from updraft_server.worker.registered.functions import FunctionModuleError
from updraft_server.zygote.image import Image

_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
_SEND_TIMEOUT_SECONDS = 5.0
_WORKER_SOCKET = 3
_WORKER_LIFELINE = 4
_OUT_OF_THE_WAY = 64
_SO_SNDBUFFORCE = 32


class Zygote:
    """A single-threaded loop over the listener, the fronts and the workers' pidfds."""

    def __init__(self, image: Image, listener: socket.socket, lifeline: int, heartbeat: Heartbeat) -> None:
        self._image = image
        self._heartbeat = heartbeat
        self._listener = listener
        self._lifeline = lifeline
        self._selector = selectors.DefaultSelector()
        self._workers: dict[socket.socket, dict[int, int]] = {}
        """The workers of each front: pid to pidfd."""

    def run(self) -> NoReturn:
        """Serve until killed."""
        self._watch(self._listener, self._accept)
        while True:
            self._heartbeat.beat()
            for key, _ in self._selector.select(INTERVAL_SECONDS):
                handle: Callable[[], None] = key.data
                handle()

    def _watch(self, source: socket.socket | int, handle: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handle)

    def _accept(self) -> None:
        front, _ = self._listener.accept()
        front.settimeout(_SEND_TIMEOUT_SECONDS)
        self._workers[front] = {}
        self._watch(front, lambda: self._receive(front))
        image = self._image
        self._send(front, Hello(os.getpid(), image.python_version, image.pyspark_version, image.functions))

    def _receive(self, front: socket.socket) -> None:
        if front not in self._workers:
            return
        try:
            data = front.recv(MAX_PACKET_BYTES)
            packet = decode(data) if data else None
        except (OSError, PacketError):
            packet = None
        if isinstance(packet, Fork):
            self._fork(front, packet)
        else:
            self._let_go(front)

    def _fork(self, front: socket.socket, packet: Fork) -> None:
        try:
            front_end, worker_end = _socketpair()
            output_read, output_write = os.pipe()
            pid = os.fork()
        except OSError as error:
            self._send(front, ForkFailed(packet.request, f"fork: {error.strerror}"))
            return
        if pid == 0:
            self._become_worker(worker_end, output_write)
        worker_end.close()
        os.close(output_write)
        pidfd = os.pidfd_open(pid)
        self._workers[front][pid] = pidfd
        self._watch(pidfd, lambda: self._reap(front, pid))
        self._send(front, Forked(packet.request, pid), [front_end.fileno(), output_read])
        front_end.close()
        os.close(output_read)

    def _become_worker(self, sock: socket.socket, output: int) -> NoReturn:
        """Leave everything of the zygote behind but its memory."""
        try:
            os.setsid()
            name_process("updraft-worker")
            die_first()
            no_core_dumps()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            # The front reads this pipe: what a function prints is worth waiting for.
            LossyFile.waits = True
            self._close_all(sock)
            lifeline = fcntl.fcntl(end_group_with(self._lifeline), fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
            os.dup2(sock.detach(), _WORKER_SOCKET, inheritable=False)
            os.dup2(lifeline, _WORKER_LIFELINE, inheritable=False)
            os.closerange(_WORKER_LIFELINE + 1, os.sysconf("SC_OPEN_MAX"))
            self._image.run_worker(socket.socket(fileno=_WORKER_SOCKET))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _close_all(self, kept: socket.socket) -> None:
        """Close objects rather than numbers: an object collected later would close a number that user code holds."""
        self._selector.close()
        self._listener.close()
        for front in self._workers:
            front.close()

    def _reap(self, front: socket.socket, pid: int) -> None:
        pidfd = self._workers.get(front, {}).pop(pid, None)
        if pidfd is None:
            return
        self._selector.unregister(pidfd)
        os.close(pidfd)
        # Still a zombie, so its number still names its own group: what its functions started ends with it.
        kill_group(pid)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._send(front, Exited(pid, code if code >= 0 else None, -code if code < 0 else None))

    def _let_go(self, front: socket.socket) -> None:
        """End the workers of a front that is gone."""
        for pid, pidfd in self._workers.pop(front).items():
            self._selector.unregister(pidfd)
            os.close(pidfd)
            kill_group(pid)
            os.waitpid(pid, 0)
        self._selector.unregister(front)
        front.close()

    def _send(self, front: socket.socket, packet: Packet, descriptors: list[int] | None = None) -> None:
        try:
            socket.send_fds(front, [encode(packet)], descriptors or [])
        except OSError:
            # It is gone or stuck; its end of file comes next, and then its workers go.
            front_is_known = front in self._workers
            if front_is_known:
                _shut(front)


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _socketpair() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair()
    for end in ends:
        try:
            end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SOCKET_BUFFER_BYTES)
        except PermissionError:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
    return ends


def main() -> NoReturn:
    """Load the image and serve; exits with EXIT_IMAGE_BROKEN and the reason when it cannot be loaded."""
    # Modules of functions may print while they are imported.
    protect_standard_streams()
    settings = ZygoteSettings.decode(os.environ.pop(SETTINGS_VARIABLE))
    name_process("updraft-zygote")
    listener = socket.socket(fileno=int(os.environ.pop(LISTENER_VARIABLE)))
    lifeline = int(os.environ.pop(LIFELINE_VARIABLE))
    heartbeat = Heartbeat.inherited()
    # A Ctrl-C in the terminal reaches the whole group: the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    retain_freed_batches()
    try:
        image = Image(settings.worker, settings.function_modules, settings.files_directory)
    except FunctionModuleError as error:
        sys.stderr.write(f"updraft-server: {error}\n")
        sys.exit(EXIT_IMAGE_BROKEN)
    except Exception:
        sys.stderr.write(f"updraft-server: the workers' image cannot be loaded\n{traceback.format_exc()}")
        sys.exit(EXIT_IMAGE_BROKEN)
    _check_threads()
    gc.collect()
    # Workers share these objects' pages for as long as nobody's collector writes to them.
    gc.freeze()
    Zygote(image, listener, lifeline, heartbeat).run()


def _check_threads() -> None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        sys.stderr.write(
            f"updraft-server: loading the workers' image has started {threads - 1} threads, which workers will lack:"
            " a function module should start threads only when it is called\n"
        )


if __name__ == "__main__":
    main()
