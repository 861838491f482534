# SPDX-License-Identifier: Apache-2.0
"""Zygote's loop: forks, signals, measures and reaps workers for fronts, and takes over those of a zygote that died."""

import contextlib
import functools
import itertools
import math
import os
import secrets
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from updraft.container_memory import memory_limits
from updraft.service.heartbeat import INTERVAL_SECONDS, Heartbeat
from updraft_server.ipc import worker_stack
from updraft_server.ipc.control import receive_front
from updraft_server.ipc.function_list import in_packets
from updraft_server.ipc.model_packets import LimitModels, MeasureModels, ModelEnded, ModelFault, ModelStarted
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.worker_records import WorkerRecords
from updraft_server.ipc.zygote_packets import (
    MAX_PACKET_BYTES,
    Claim,
    Continue,
    Exited,
    Fork,
    Forked,
    ForkFailed,
    Kill,
    Measure,
    Measured,
    Packet,
    ReloadRefused,
    Retired,
    ShowStack,
    Stop,
    Sweep,
    decode,
    encode,
)
from updraft_server.linux.descendants import children
from updraft_server.linux.held_memory import held_bytes
from updraft_server.linux.out_of_memory import OutOfMemoryScore
from updraft_server.linux.process_control import kill_group, outlive_parent
from updraft_server.linux.process_trees import own_bytes, process_trees
from updraft_server.sandbox.worker_sandbox import WorkerSandbox
from updraft_server.zygote.forked_worker import become_worker, pipe, socketpair
from updraft_server.zygote.held_worker import HeldWorker
from updraft_server.zygote.image import Image
from updraft_server.zygote.model_host import ZygoteModelHost
from updraft_server.zygote.models import Models
from updraft_server.zygote.orphans import Orphans
from updraft_server.zygote.scratch import ScratchDirectories
from updraft_server.zygote.shared_memory import remove_unused_files
from updraft_server.zygote.worker_ends import WorkerEnds

_SIGNALS: Mapping[type[Packet], int] = {Kill: signal.SIGKILL, Stop: signal.SIGSTOP, Continue: signal.SIGCONT}
_SEND_TIMEOUT_SECONDS = 5.0
# A living front claims its workers at once; workers unclaimed after this time belong to a front that is gone.
_CLAIM_SECONDS = 10.0
# Share of the container's or machine's memory for one model if no limit is set; the rest is for workers and the image.
_SHARE_OF_A_MODEL = 0.75
# A killed process that waits for a disk does not end, and the zygote must not wait for it for ever.
_LAST_DEATHS_SECONDS = 10.0


class Zygote:
    """Single-threaded loop over the supervisor's socket and lifeline, the fronts, and the workers' pidfds."""

    def __init__(
        self,
        image: Image,
        supervisor: socket.socket,
        lifeline: int,
        heartbeat: Heartbeat,
        records: WorkerRecords,
        score: OutOfMemoryScore,
        sandbox: WorkerSandbox,
        scratch_directory: Path,
        *,
        sweeps_shared_memory: bool,
        model_memory_bytes: int = 0,
        generation: int = 0,
        is_successor: bool = False,
    ) -> None:
        self._image = image
        self._heartbeat = heartbeat
        self._supervisor = supervisor
        self._lifeline = lifeline
        self._records = records
        self._score = score
        self._sandbox = sandbox
        self._sweeps_shared_memory = sweeps_shared_memory
        self._generation = generation
        self._is_successor = is_successor
        # Use poll, not epoll: the kernel limits the number of epoll watches per user, and a function could use them up.
        self._selector = selectors.PollSelector()
        self._fronts: dict[socket.socket, int] = {}
        """Fronts and their process ids; 0 for a front in another PID namespace."""
        self._workers: dict[str, HeldWorker] = {}
        self._orphans = Orphans(self._watch, self._unwatch)
        self._ends = WorkerEnds()
        self._scratch = ScratchDirectories(scratch_directory, self._watch, self._unwatch, self._close_all)
        host = ZygoteModelHost(
            image,
            self._scratch,
            sandbox,
            score,
            lifeline,
            front_pid=lambda: next(iter(self._fronts.values()), 0),
            close_others=self._close_all,
            tell=self._tell_of_models,
        )
        self._models = Models(
            image.batched_functions,
            host,
            self._watch,
            self._unwatch,
            budget_bytes=model_memory_bytes,
            most_bytes=model_memory_bytes or int(_SHARE_OF_A_MODEL * min(memory_limits().values())),
        )
        # Processes that function modules have started serve all workers, and stay.
        self._image_processes = frozenset(children())
        # Memory that every worker starts with, and shares until it writes to it.
        self._image_bytes = own_bytes()
        # Ids must not repeat, because workers of an earlier zygote may still use theirs. They must not be guessable,
        # because they name scratch directories, and Landlock does not cover chmod: another worker could make one
        # inaccessible.
        self._ids = (f"{number}-{secrets.token_hex(8)}" for number in itertools.count(1))
        self._claims_end_seconds = math.inf
        self._refused: ReloadRefused | None = None
        """Last reload that the supervisor refused."""
        self._is_ending = False
        self._is_retired = False

    def end_with_fronts(self) -> None:
        """Let `run` return as soon as no front is connected."""
        self._is_ending = True

    def run(self) -> None:
        """Serve, then end everything that was started here.

        Serving stops once this zygote is ending and has no front, or is retired and has no workers.
        """
        # This process must outlive the supervisor, because only this process knows what has to end with it.
        outlive_parent()
        self._watch(self._lifeline, self._lose_supervisor)
        self._take_over()
        self._watch(self._supervisor, self._meet)
        while not self._is_done():
            self._turn()
            # Do this on every turn, not only after a worker has died: functions may disown processes at any time.
            self._tell_ends(is_anything_left=self._end_strays())
        self._end_everything()

    def _is_done(self) -> bool:
        if self._is_ending:
            return not self._fronts
        return self._is_retired and not self._workers and not self._ends

    def _turn(self) -> None:
        self._heartbeat.beat()
        for key, _ in self._selector.select(min(INTERVAL_SECONDS, self._models.wait_seconds, self._ends.wait_seconds)):
            handle: Callable[[], None] = key.data
            handle()
        self._models.turn()
        self._end_unclaimed()

    def _lose_supervisor(self) -> None:
        """End everything that was started here: without a supervisor nothing can replace what dies."""
        self._is_ending = True
        self._unwatch(self._lifeline)
        self._close_supervisor()
        # The front that has the models comes last, so that the models are not restarted for another front.
        for front in reversed(list(self._fronts)):
            self._let_go(front)

    def _end_everything(self) -> None:
        """End what is left: unclaimed workers, and processes that functions and their modules have started."""
        self._close_supervisor()
        if self._is_retired:
            self._models.stop("made way for its successor")
        self._models.stop()
        self._scratch.stop()
        for worker in self._workers.values():
            worker.kill()
        give_up_seconds = time.monotonic() + _LAST_DEATHS_SECONDS
        while self._orphans.end(known=self._own_processes()) or self._workers or self._models.pids:
            if time.monotonic() >= give_up_seconds:
                return
            self._turn()
            # Fronts are gone, but this also sweeps shared memory.
            self._tell_ends(is_anything_left=False)

    def _end_strays(self) -> bool:
        """Kill processes that functions have disowned; returns False once there are none."""
        return self._orphans.end(known=self._image_processes | self._scratch.processes | self._own_processes())

    def _own_processes(self) -> set[int]:
        """Return the ids of workers and models that this process has forked."""
        return {worker.pid for worker in self._workers.values() if worker.is_child} | self._models.pids

    def _watch(self, source: socket.socket | int, handle: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handle)

    def _unwatch(self, source: socket.socket | int) -> None:
        """Stop watching `source`; idempotent."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(source)

    def _take_over(self) -> None:
        """Take over workers of a dead zygote until their front claims them.

        A successor of a living zygote takes over only workers that a front claims.
        """
        if self._is_successor:
            return
        self._adopt()
        self._scratch.discard_all_but(self._workers)

    def _adopt(self) -> None:
        for survivor in self._records.survivors():
            if survivor.worker in self._workers:
                os.close(survivor.pidfd)
                continue
            self._hold(HeldWorker(*survivor, front=None, is_child=False))
            self._claims_end_seconds = time.monotonic() + _CLAIM_SECONDS

    def _end_unclaimed(self) -> None:
        if time.monotonic() < self._claims_end_seconds:
            return
        self._claims_end_seconds = math.inf
        for worker in self._workers.values():
            if worker.front is None:
                worker.kill()

    def _close_supervisor(self) -> None:
        if self._supervisor.fileno() >= 0:
            self._unwatch(self._supervisor)
            self._supervisor.close()

    def _meet(self) -> None:
        """Handle a message of the supervisor: a front, a refused reload, or end of file, which retires this zygote."""
        if self._supervisor.fileno() < 0:
            # The socket was closed in the same turn.
            return
        met = receive_front(self._supervisor)
        if met is None:
            self._retire()
            return
        if isinstance(met, str):
            self._refused = ReloadRefused(met)
            for front in list(self._fronts):
                self._send(front, self._refused)
            return
        front, front_pid = met
        front.settimeout(_SEND_TIMEOUT_SECONDS)
        self._fronts[front] = front_pid
        self._watch(front, lambda: self._receive(front))
        hello = replace(self._image.hello(self._sandbox.layers), generation=self._generation)
        for packet in in_packets(hello):
            self._send(front, packet)
        if self._refused is not None:
            self._send(front, self._refused)
        for fault in self._models.faults():
            self._send(front, fault)
        if len(self._fronts) == 1:
            self._models.start()

    def _retire(self) -> None:
        """Leave the front and the workers to a successor, but serve models to these workers until they have ended.

        Workers of an earlier zygote use that zygote's models or none, so this one need not wait for their end.
        """
        self._close_supervisor()
        self._is_retired = True
        self._tell_ends(is_anything_left=False)
        self._claims_end_seconds = math.inf
        for worker in list(self._workers.values()):
            # Continue stopped workers: if their front died before it claims them, they would not notice.
            worker.signal(signal.SIGCONT)
            worker.front = None
            if not worker.is_child:
                self._forget(worker)
        for front in list(self._fronts):
            self._send(front, Retired())

    def _receive(self, front: socket.socket) -> None:
        if front not in self._fronts:
            # The front was dropped in the same turn.
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
            case Kill() | Stop() | Continue():
                if (worker := self._of(front, packet.worker)) is not None:
                    worker.signal(_SIGNALS[type(packet)])
            case ShowStack():
                if (worker := self._of(front, packet.worker)) is not None:
                    worker.signal(worker_stack.SIGNAL)
                else:
                    self._models.show_stack(packet.worker)
            case Sweep():
                if self._sweeps_shared_memory:
                    remove_unused_files()
            case Measure():
                self._measure(front, packet)
            case LimitModels():
                self._models.limits = packet
            case MeasureModels():
                self._send(front, self._models.measured(packet))
            case _:
                self._let_go(front)

    def _claim(self, front: socket.socket, packet: Claim) -> None:
        if self._is_retired:
            # The front did not know of the retirement yet; it will claim its workers from the successor.
            return
        if self._is_successor and not self._workers.keys() >= set(packet.workers):
            # The predecessor retired before the front came here, so it forks no more workers: adopt all that it has
            # left.
            self._adopt()
        for name in packet.workers:
            worker = self._workers.get(name)
            if worker is None:
                self._send(front, Exited(name, None))
            elif worker.front is None:
                worker.front = front

    def _fork(self, front: socket.socket, packet: Fork) -> None:
        if self._is_retired:
            # The front did not know of the retirement when it asked.
            return
        name = next(self._ids)
        shared_memory: int | None = None
        with contextlib.ExitStack() as descriptors:
            try:
                scratch = self._scratch.make(name)
                front_end, worker_end = map(descriptors.enter_context, socketpair())
                output_read, output_write = pipe(descriptors)
                stack_read, stack_write = pipe(descriptors)
                shared_memory = self._sandbox.new_shared_memory()
                model_channel = (
                    descriptors.enter_context(self._models.model_channels.open(name)) if self._models else None
                )
                with self._score.raised():
                    pid = os.fork()
            except OSError as error:
                if shared_memory is not None:
                    os.close(shared_memory)
                self._scratch.discard(name)
                self._models.model_channels.shut(name)
                self._send(front, ForkFailed(packet.request, f"fork: {error.strerror}"))
                return
            if pid == 0:
                front_pid = self._fronts[front]
                become_worker(
                    worker_end,
                    output_write,
                    stack_write,
                    self._lifeline,
                    self._close_all,
                    lambda: self._sandbox.enter(front_pid, shared_memory, scratch),
                    functools.partial(self._image.run_worker, scratch),
                    model_channel=model_channel,
                )
            worker = HeldWorker(name, pid, os.pidfd_open(pid), front, is_child=True, shared_memory=shared_memory)
            self._hold(worker)
            try:
                self._records.add(worker.id, pid)
            except OSError as error:
                worker.kill()
                self._send(front, ForkFailed(packet.request, f"cannot note the worker: {error}"))
            else:
                self._send(front, Forked(packet.request, worker.id, pid), [front_end.fileno(), output_read, stack_read])

    def _hold(self, worker: HeldWorker) -> None:
        self._workers[worker.id] = worker
        self._watch(worker.pidfd, lambda: self._reap(worker))

    def _of(self, front: socket.socket, name: str) -> HeldWorker | None:
        worker = self._workers.get(name)
        return worker if worker is not None and worker.front is front else None

    def _measure(self, front: socket.socket, packet: Measure) -> None:
        workers = [worker for name in packet.workers if (worker := self._of(front, name)) is not None]
        trees = process_trees(worker.pid for worker in workers)
        held, room = held_bytes(), self._scratch.room_bytes()
        usage = {
            worker.id: worker.usage(trees[worker.pid], self._image_bytes, held, self._scratch.size(worker.id), room)
            for worker in workers
        }
        self._send(front, Measured(packet.request, usage))

    def _close_all(self) -> None:
        self._selector.close()
        self._supervisor.close()
        self._models.close()
        for front in self._fronts:
            front.close()

    def _reap(self, worker: HeldWorker) -> None:
        if worker.id not in self._workers:
            return
        status = self._bury(worker)
        self._ends.add(worker.front, worker.id, status)

    def _tell_ends(self, *, is_anything_left: bool) -> None:
        ends = self._ends.take(is_anything_left=is_anything_left)
        if ends and self._sweeps_shared_memory:
            # Sweep before telling: the front may be waiting for this very exit.
            remove_unused_files()
        for end in ends:
            if end.front in self._fronts:
                self._send(end.front, Exited(end.worker, end.status))

    def _bury(self, worker: HeldWorker) -> int | None:
        """Forget a worker that has ended or is being killed; returns its exit status, or None if unknown."""
        self._forget(worker)
        if worker.shared_memory is not None:
            os.close(worker.shared_memory)
        status = None
        if worker.is_child:
            # Until the worker is reaped, its id still names its own group: kill what its functions have started.
            kill_group(worker.pid)
            _, wait_status = os.waitpid(worker.pid, 0)
            status = os.waitstatus_to_exitcode(wait_status)
        self._models.model_channels.shut(worker.id)
        self._records.forget(worker.id)
        self._scratch.discard(worker.id)
        return status

    def _forget(self, worker: HeldWorker) -> None:
        """Stop tracking a worker; if it is alive, it goes on running."""
        del self._workers[worker.id]
        self._selector.unregister(worker.pidfd)
        os.close(worker.pidfd)

    def _let_go(self, front: socket.socket) -> None:
        """End the workers of a front that is gone."""
        for worker in [worker for worker in self._workers.values() if worker.front is front]:
            worker.kill()
            self._bury(worker)
        has_models = front is next(iter(self._fronts), None)
        self._fronts.pop(front, None)
        self._selector.unregister(front)
        front.close()
        if has_models:
            # Only this front reads what the models print.
            self._models.stop()
            if self._fronts:
                self._models.start()

    def _tell_of_models(self, packet: ModelStarted | ModelEnded | ModelFault, descriptors: Sequence[int]) -> None:
        for front in list(self._fronts):
            self._send(front, packet, list(descriptors))
            if isinstance(packet, ModelStarted):
                # Only one front reads what the model prints.
                return

    def _send(self, front: socket.socket, packet: Packet, descriptors: list[int] | None = None) -> None:
        try:
            socket.send_fds(front, [encode(packet)], descriptors or [])
        except OSError:
            # The front is gone or stuck. Shut its socket down, so that `_receive` reads end of file and ends its
            # workers.
            if front in self._fronts:
                with contextlib.suppress(OSError):
                    front.shutdown(socket.SHUT_RDWR)
