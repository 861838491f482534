# SPDX-License-Identifier: Apache-2.0
"""Zygote's loop: forks, signals, measures and reaps workers for fronts, and takes over workers of a dead zygote."""

import contextlib
import itertools
import math
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from updraft.container_memory import memory_limits
from updraft.service.heartbeat import INTERVAL_SECONDS, Heartbeat
from updraft_server.ipc import zygote_packets as packets
from updraft_server.ipc.control import receive_front
from updraft_server.ipc.function_list import in_packets
from updraft_server.ipc.model_packets import LimitModels, MeasureModels, ModelEnded, ModelFault, ModelStarted
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.worker_records import WorkerRecords
from updraft_server.linux.descendants import children
from updraft_server.linux.out_of_memory import OutOfMemoryScore
from updraft_server.linux.process_control import outlive_parent
from updraft_server.sandbox.worker_sandbox import WorkerSandbox
from updraft_server.sandbox_layers import SHARED_MEMORY_PATH
from updraft_server.zygote.forks import Forks, socketpair
from updraft_server.zygote.image import Image
from updraft_server.zygote.model_host import ZygoteModelHost
from updraft_server.zygote.models import Models
from updraft_server.zygote.scratch import ScratchDirectories
from updraft_server.zygote.shared_memory import SharedMemory
from updraft_server.zygote.workers import HeldWorker, HeldWorkers, Orphans, WorkerEnd

_ORDERS: Mapping[type[packets.Packet], Callable[[HeldWorker], None]] = {
    packets.Kill: HeldWorker.kill,
    packets.Stop: HeldWorker.stop,
    packets.Continue: HeldWorker.go_on,
}
_SEND_TIMEOUT_SECONDS = 5.0
# Share of the container's or machine's memory that one model may use if no limit is set. The rest is for workers and
# the image.
_SHARE_OF_A_MODEL = 0.75
# Time limit for the last processes to end. A killed process that waits for a disk may never end.
_LAST_DEATHS_SECONDS = 10.0


class Zygote:
    """Single-threaded loop over the supervisor's socket and lifeline, the fronts, and the workers' pidfds."""

    def __init__(
        self,
        settings: packets.ZygoteSettings,
        image: Image,
        supervisor: socket.socket,
        lifeline: int,
        heartbeat: Heartbeat,
        records: WorkerRecords,
        score: OutOfMemoryScore,
        sandbox: WorkerSandbox,
    ) -> None:
        self._settings = settings
        self._image = image
        self._heartbeat = heartbeat
        self._supervisor = supervisor
        self._lifeline = lifeline
        self._sandbox = sandbox
        # Use poll instead of epoll: the kernel limits a user's epoll watches, and a function could use all of them.
        self._selector = selectors.PollSelector()
        self._fronts: dict[socket.socket, int] = {}
        """Fronts and their process ids; 0 for a front in another PID namespace."""
        scratch = self._scratch = ScratchDirectories(
            Path(settings.scratch_directory), self._watch, self._unwatch, self._close_all
        )
        is_shared = settings.shared_memory == "pool" and not sandbox.has_own_shared_memory
        self._shared_memory = (
            SharedMemory(Path(SHARED_MEMORY_PATH), self._watch, self._unwatch, self._close_all) if is_shared else None
        )
        """The /dev/shm that all workers share and that this pool alone uses; None otherwise."""
        self._workers = HeldWorkers(
            records, scratch, self._watch, self._unwatch, lambda worker: self._models.model_channels.shut(worker)
        )
        self._orphans = Orphans(self._watch, self._unwatch)
        self._forks = Forks(scratch, sandbox, score, lifeline, self._close_all)
        self._models = Models(
            image.batched_functions,
            ZygoteModelHost(
                image,
                self._forks,
                scratch,
                front_pid=lambda: next(iter(self._fronts.values()), 0),
                tell=self._tell_of_models,
            ),
            self._watch,
            self._unwatch,
            budget_bytes=settings.model_memory_bytes,
            most_bytes=settings.model_memory_bytes or int(_SHARE_OF_A_MODEL * min(memory_limits().values())),
        )
        # Processes that function modules have started. They serve all workers, so they are not ended as orphans.
        self._image_processes = frozenset(children())
        # Ids must be unique, because workers of an earlier zygote may still use their ids. Ids must not be guessable,
        # because ids name scratch directories: Landlock does not cover chmod, so a worker could make another worker's
        # directory inaccessible.
        self._ids = (f"{number}-{secrets.token_hex(8)}" for number in itertools.count(1))
        self._refused: packets.ReloadRefused | None = None
        """Last reload that the supervisor refused."""
        self._is_ending = False
        self._is_retired = False
        self._next_end_seconds = 0.0
        """Until this monotonic time, turns that only stop or continue workers need not look for orphans."""
        self._pauses = 0
        """Number of events of this turn that stopped or continued a worker."""

    def end_with_fronts(self) -> None:
        """Let `run` return as soon as no front is connected."""
        self._is_ending = True

    def run(self) -> None:
        """Serve, then end everything that this process has started.

        Serving stops when this zygote is ending and has no front, or is retired and has no workers.
        """
        # This process must outlive the supervisor, because only this process knows which processes have to end with
        # the supervisor.
        outlive_parent()
        self._watch(self._lifeline, self._lose_supervisor)
        # A successor of a living zygote takes over only workers that a front claims.
        if not self._settings.is_successor:
            self._workers.take_over()
        self._watch(self._supervisor, self._meet)
        while not self._is_done():
            if self._turn() and time.monotonic() < self._next_end_seconds and not self._has_exits:
                # An exchange waits for the worker that was just continued. Do not compete with the worker for a core.
                continue
            # On all other turns, end orphans even if no worker has died, because functions may leave orphans at any
            # time.
            self._next_end_seconds = time.monotonic() + INTERVAL_SECONDS
            self._tell_ends(is_anything_left=self._end_strays())
        self._end_everything()

    def _is_done(self) -> bool:
        if self._is_ending:
            return not self._fronts
        return self._is_retired and not self._workers and not self._has_exits

    def _turn(self) -> bool:
        """Wait for events and handle them. Return whether there were events and each stopped or continued a worker."""
        self._heartbeat.beat()
        events = self._selector.select(
            min(
                INTERVAL_SECONDS,
                self._models.wait_seconds,
                self._workers.wait_seconds,
                self._workers.ends.wait_seconds,
                self._sweep_seconds,
            )
        )
        self._pauses = 0
        for key, _ in events:
            handle: Callable[[], None] = key.data
            handle()
        self._models.turn()
        self._workers.end_unclaimed()
        for worker in self._workers.stop_again():
            if worker.front in self._fronts:
                self._send(worker.front, packets.WentOn(worker.id))
        return 0 < len(events) == self._pauses

    @property
    def _has_exits(self) -> bool:
        """Whether exits wait to be reported."""
        return bool(self._workers.ends) or not math.isinf(self._sweep_seconds)

    @property
    def _sweep_seconds(self) -> float:
        """Time until exits that wait for a sweep are reported; infinite if none wait."""
        return math.inf if self._shared_memory is None else self._shared_memory.wait_seconds

    def _lose_supervisor(self) -> None:
        """End everything that this process has started. Without a supervisor, nothing can replace dead processes."""
        self._is_ending = True
        self._unwatch(self._lifeline)
        self._close_supervisor()
        # The first front reads the models' output. Let go of this front last, so that the models are not restarted for
        # another front.
        for front in reversed(list(self._fronts)):
            self._let_go(front)

    def _end_everything(self) -> None:
        """End all that is left: unclaimed workers, and processes that functions and their modules have started."""
        self._close_supervisor()
        if self._is_retired:
            self._models.stop("made way for its successor")
        self._models.stop()
        self._scratch.stop()
        if self._shared_memory is not None:
            self._shared_memory.stop()
        self._workers.kill_all()
        give_up_seconds = time.monotonic() + _LAST_DEATHS_SECONDS
        while self._orphans.end(known=self._own_processes()) or self._workers or self._models.pids:
            if time.monotonic() >= give_up_seconds:
                return
            self._turn()
            # This call reports to nobody, because all fronts have ended, but it also sweeps shared memory.
            self._tell_ends(is_anything_left=False)

    def _end_strays(self) -> bool:
        """Kill orphans that functions have left. Return False if there were no orphans."""
        return self._orphans.end(known=self._image_processes | self._helpers() | self._own_processes())

    def _helpers(self) -> frozenset[int]:
        shared_memory = frozenset[int]() if self._shared_memory is None else self._shared_memory.processes
        return self._scratch.processes | shared_memory

    def _own_processes(self) -> set[int]:
        """Return the ids of workers and models that this process has forked."""
        return self._workers.pids | self._models.pids

    def _watch(self, source: socket.socket | int, handle: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handle)

    def _unwatch(self, source: socket.socket | int) -> None:
        """Stop watching `source`; idempotent."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(source)

    def _close_supervisor(self) -> None:
        if self._supervisor.fileno() >= 0:
            self._unwatch(self._supervisor)
            self._supervisor.close()

    def _meet(self) -> None:
        """Handle a message of the supervisor: a front, or a refused reload. Retire if the supervisor has hung up."""
        if self._supervisor.fileno() < 0:
            # The socket was closed in the same turn.
            return
        met = receive_front(self._supervisor)
        if met is None:
            self._retire()
            return
        if isinstance(met, str):
            self._refused = packets.ReloadRefused(met)
            for front in list(self._fronts):
                self._send(front, self._refused)
            return
        front, front_pid = met
        front.settimeout(_SEND_TIMEOUT_SECONDS)
        self._fronts[front] = front_pid
        self._watch(front, lambda: self._receive(front))
        hello = replace(self._image.hello(self._sandbox.layers), generation=self._settings.generation)
        for packet in in_packets(hello):
            self._send(front, packet)
        if self._refused is not None:
            self._send(front, self._refused)
        for fault in self._models.faults():
            self._send(front, fault)
        if len(self._fronts) == 1:
            self._models.start()

    def _retire(self) -> None:
        """Leave fronts and workers to a successor, but serve models to this zygote's own workers until the workers end.

        Workers of an earlier zygote do not use this zygote's models, so this zygote does not wait for them to end.
        """
        self._close_supervisor()
        self._is_retired = True
        self._tell_ends(is_anything_left=False)
        self._workers.retire()
        for front in list(self._fronts):
            self._send(front, packets.Retired())

    def _receive(self, front: socket.socket) -> None:
        if front not in self._fronts:
            # The front was dropped in the same turn.
            return
        try:
            data = front.recv(packets.MAX_PACKET_BYTES)
            packet = packets.decode(data) if data else None
        except (OSError, PacketError):
            packet = None
        match packet:
            case packets.Claim():
                self._claim(front, packet)
            case packets.Fork():
                self._fork(front, packet)
            case packets.Kill() | packets.Stop() | packets.Continue():
                self._pauses += not isinstance(packet, packets.Kill)
                if (worker := self._workers.of(front, packet.worker)) is not None:
                    _ORDERS[type(packet)](worker)
            case packets.ShowStack():
                if (worker := self._workers.of(front, packet.worker)) is not None:
                    worker.signal(packets.STACK_SIGNAL)
                else:
                    self._models.show_stack(packet.worker)
            case packets.Sweep():
                if self._shared_memory is not None:
                    self._shared_memory.sweep()
            case packets.Measure():
                self._send(front, packets.Measured(packet.request, self._workers.measured(front, packet.workers)))
            case LimitModels():
                self._models.limits = packet
            case MeasureModels():
                self._send(front, self._models.measured(packet))
            case _:
                self._let_go(front)

    def _claim(self, front: socket.socket, packet: packets.Claim) -> None:
        if self._is_retired:
            # The front did not know of the retirement yet. It will claim its workers from the successor.
            return
        for name in self._workers.claim(front, packet.workers, is_successor=self._settings.is_successor):
            self._send(front, packets.Exited(name, None))

    def _fork(self, front: socket.socket, packet: packets.Fork) -> None:
        if self._is_retired:
            # The front did not know of the retirement when it asked.
            return
        name = next(self._ids)
        with contextlib.ExitStack() as descriptors:
            try:
                front_end, worker_end = map(descriptors.enter_context, socketpair())
                model_channel = (
                    descriptors.enter_context(self._models.model_channels.open(name)) if self._models else None
                )
                front_pid, run = self._fronts[front], self._image.run_worker
                forked = self._forks.fork(name, worker_end, front_pid, run, descriptors, model_channel=model_channel)
            except OSError as error:
                self._models.model_channels.shut(name)
                self._send(front, packets.ForkFailed(packet.request, f"fork: {error.strerror}"))
                return
            try:
                self._workers.add(
                    HeldWorker(name, forked.pid, forked.pidfd, front, is_child=True, shared_memory=forked.shared_memory)
                )
            except OSError as error:
                self._send(front, packets.ForkFailed(packet.request, f"cannot note the worker: {error}"))
            else:
                ends = [front_end.fileno(), forked.output, forked.stack, forked.pidfd]
                self._send(front, packets.Forked(packet.request, name, forked.pid), ends)

    def _close_all(self) -> None:
        self._selector.close()
        self._supervisor.close()
        self._models.close()
        for front in self._fronts:
            front.close()

    def _tell_ends(self, *, is_anything_left: bool) -> None:
        ends: Sequence[WorkerEnd] = self._workers.ends.take(is_anything_left=is_anything_left)
        if self._shared_memory is not None:
            # Sweep before reporting, because the front then gives an ended worker's place to another owner.
            ends = self._shared_memory.swept(ends)
        for end in ends:
            if end.front in self._fronts:
                self._send(end.front, packets.Exited(end.worker, end.status))

    def _let_go(self, front: socket.socket) -> None:
        """End the workers of a front that is gone."""
        self._workers.let_go(front)
        has_models = front is next(iter(self._fronts), None)
        self._fronts.pop(front, None)
        self._selector.unregister(front)
        front.close()
        if has_models:
            # Only this front read the models' output, so restart the models for the next front.
            self._models.stop()
            if self._fronts:
                self._models.start()

    def _tell_of_models(self, packet: ModelStarted | ModelEnded | ModelFault, descriptors: Sequence[int]) -> None:
        for front in list(self._fronts):
            self._send(front, packet, list(descriptors))
            if isinstance(packet, ModelStarted):
                # Only one front reads the model's output.
                return

    def _send(self, front: socket.socket, packet: packets.Packet, descriptors: list[int] | None = None) -> None:
        try:
            socket.send_fds(front, [packets.encode(packet)], descriptors or [])
        except OSError:
            # The front is gone or stuck. Shut its socket down, so that `_receive` reads end of file and ends the
            # front's workers.
            if front in self._fronts:
                with contextlib.suppress(OSError):
                    front.shutdown(socket.SHUT_RDWR)
