# SPDX-License-Identifier: Apache-2.0
"""The process that workers are forked from: it has loaded what they need, and runs neither threads nor gRPC.

Started by `updraft_server.supervisor.supervisor` as `python -m updraft_server.zygote.process`. It serves any number of
fronts, one after the other in practice, and ends the workers of a front that goes away. Workers of a zygote that died
are taken over and kept for the front that claims them.
"""

import contextlib
import fcntl
import gc
import hashlib
import itertools
import os
import secrets
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from updraft.service.allocator import retain_freed_batches
from updraft.service.lossy_streams import LossyFile, protect_standard_streams
from updraft_server.ipc.heartbeat import INTERVAL_SECONDS, Heartbeat
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import (
    EXIT_IMAGE_BROKEN,
    LIFELINE_VARIABLE,
    LISTENER_VARIABLE,
    MAX_PACKET_BYTES,
    SETTINGS_VARIABLE,
    Claim,
    Exited,
    Fork,
    Forked,
    ForkFailed,
    Hello,
    Kill,
    Measure,
    Measured,
    Packet,
    PacketError,
    ZygoteSettings,
    decode,
    encode,
)
from updraft_server.linux.process_control import die_first, end_group_with, kill_group, name_process, no_core_dumps
from updraft_server.linux.process_trees import ProcessTree, process_trees
from updraft_server.worker.registered.functions import FunctionModuleError
from updraft_server.zygote.image import Image
from updraft_server.zygote.worker_records import WorkerRecords

_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
_SEND_TIMEOUT_SECONDS = 5.0
# A front that lives reconnects at once; workers that nobody has claimed by then belong to a front that is gone.
_CLAIM_SECONDS = 10.0
_WORKER_SOCKET = 3
_WORKER_LIFELINE = 4
_OUT_OF_THE_WAY = 64
_SO_SNDBUFFORCE = 32


@dataclass(eq=False, slots=True)
class _Worker:
    id: str
    pid: int
    pidfd: int
    front: socket.socket | None
    """Whose it is; None while it waits to be claimed."""
    is_child: bool
    """False for one that an earlier zygote forked: somebody else reaps it."""


class Zygote:
    """A single-threaded loop over the listener, the fronts and the workers' pidfds."""

    def __init__(
        self, image: Image, listener: socket.socket, lifeline: int, heartbeat: Heartbeat, records: WorkerRecords
    ) -> None:
        self._image = image
        self._heartbeat = heartbeat
        self._listener = listener
        self._lifeline = lifeline
        self._records = records
        self._selector = selectors.DefaultSelector()
        self._fronts: set[socket.socket] = set()
        self._workers: dict[str, _Worker] = {}
        # Ids of an earlier zygote's workers may still be in use.
        self._ids = map(f"{secrets.token_hex(3)}-{{}}".format, itertools.count(1))
        self._claims_end_seconds: float | None = None
        self._is_ending = False

    def end_with_fronts(self) -> None:
        """Let `run` return as soon as no front is connected."""
        self._is_ending = True

    def run(self) -> None:
        """Serve until killed, or as long as there are fronts."""
        self._take_over()
        self._watch(self._listener, self._accept)
        while self._fronts or not self._is_ending:
            self._heartbeat.beat()
            for key, _ in self._selector.select(INTERVAL_SECONDS):
                handle: Callable[[], None] = key.data
                handle()
            self._end_unclaimed()

    def _watch(self, source: socket.socket | int, handle: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handle)

    def _take_over(self) -> None:
        """Hold the workers of an earlier zygote until their front claims them."""
        for survivor in self._records.survivors():
            self._hold(_Worker(*survivor, front=None, is_child=False))
        if self._workers:
            self._claims_end_seconds = time.monotonic() + _CLAIM_SECONDS

    def _end_unclaimed(self) -> None:
        if self._claims_end_seconds is None or time.monotonic() < self._claims_end_seconds:
            return
        self._claims_end_seconds = None
        for worker in self._workers.values():
            if worker.front is None:
                _kill(worker)

    def _accept(self) -> None:
        front, _ = self._listener.accept()
        front.settimeout(_SEND_TIMEOUT_SECONDS)
        self._fronts.add(front)
        self._watch(front, lambda: self._receive(front))
        image = self._image
        self._send(front, Hello(os.getpid(), image.python_version, image.pyspark_version, image.functions))

    def _receive(self, front: socket.socket) -> None:
        if front not in self._fronts:
            return
        try:
            data = front.recv(MAX_PACKET_BYTES)
            packet = decode(data) if data else None
        except (OSError, PacketError):
            packet = None
        match packet:
            case Claim():
                self._claim(front, packet)
            case Fork():
                self._fork(front, packet)
            case Kill():
                if (worker := self._of(front, packet.worker)) is not None:
                    _kill(worker)
            case Measure():
                self._measure(front, packet)
            case _:
                self._let_go(front)

    def _claim(self, front: socket.socket, packet: Claim) -> None:
        for name in packet.workers:
            worker = self._workers.get(name)
            if worker is None:
                self._send(front, Exited(name, None, None))
            elif worker.front is None:
                worker.front = front

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
        worker = _Worker(next(self._ids), pid, os.pidfd_open(pid), front, is_child=True)
        self._hold(worker)
        try:
            self._records.add(worker.id, pid)
        except OSError as error:
            _kill(worker)
            self._send(front, ForkFailed(packet.request, f"cannot note the worker: {error}"))
        else:
            self._send(front, Forked(packet.request, worker.id, pid), [front_end.fileno(), output_read])
        front_end.close()
        os.close(output_read)

    def _hold(self, worker: _Worker) -> None:
        self._workers[worker.id] = worker
        self._watch(worker.pidfd, lambda: self._reap(worker))

    def _of(self, front: socket.socket, name: str) -> _Worker | None:
        worker = self._workers.get(name)
        return worker if worker is not None and worker.front is front else None

    def _measure(self, front: socket.socket, packet: Measure) -> None:
        workers = [worker for name in packet.workers if (worker := self._of(front, name)) is not None]
        trees = process_trees(worker.pid for worker in workers)
        self._send(front, Measured(packet.request, {worker.id: _usage(trees[worker.pid]) for worker in workers}))

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
        for front in self._fronts:
            front.close()

    def _reap(self, worker: _Worker) -> None:
        if worker.id not in self._workers:
            return
        code = self._bury(worker)
        if worker.front is None:
            return
        if code is None:
            self._send(worker.front, Exited(worker.id, None, None))
        else:
            self._send(worker.front, Exited(worker.id, code if code >= 0 else None, -code if code < 0 else None))

    def _bury(self, worker: _Worker) -> int | None:
        """Forget a worker that has ended or is being killed; how it ended, where that can be known."""
        del self._workers[worker.id]
        self._selector.unregister(worker.pidfd)
        os.close(worker.pidfd)
        code = None
        if worker.is_child:
            # Not reaped yet, so its number still names its own group: what its functions started ends with it.
            kill_group(worker.pid)
            _, status = os.waitpid(worker.pid, 0)
            code = os.waitstatus_to_exitcode(status)
        self._records.forget(worker.id)
        return code

    def _let_go(self, front: socket.socket) -> None:
        """End the workers of a front that is gone."""
        for worker in [worker for worker in self._workers.values() if worker.front is front]:
            _kill(worker)
            self._bury(worker)
        self._fronts.discard(front)
        self._selector.unregister(front)
        front.close()

    def _send(self, front: socket.socket, packet: Packet, descriptors: list[int] | None = None) -> None:
        try:
            socket.send_fds(front, [encode(packet)], descriptors or [])
        except OSError:
            # It is gone or stuck; its end of file comes next, and then its workers go.
            if front in self._fronts:
                _shut(front)


def _kill(worker: _Worker) -> None:
    """Send SIGKILL; what the worker has started is ended by whoever reaps it."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)


def _usage(tree: ProcessTree) -> WorkerUsage:
    # Whoever compares two measurements need not see process ids.
    mark = hashlib.blake2b(repr(tree.ticks).encode(), digest_size=8).hexdigest()
    return WorkerUsage(tree.memory_bytes, mark)


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


def main() -> None:
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
    zygote = Zygote(image, listener, lifeline, heartbeat, WorkerRecords(Path(settings.workers_directory)))
    # Its workers are a front's, which finishes what runs: the supervisor bounds that.
    signal.signal(signal.SIGTERM, lambda *_: zygote.end_with_fronts())
    zygote.run()


def _check_threads() -> None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        sys.stderr.write(
            f"updraft-server: loading the workers' image has started {threads - 1} threads, which workers will lack:"
            " a function module should start threads only when it is called\n"
        )


if __name__ == "__main__":
    main()
