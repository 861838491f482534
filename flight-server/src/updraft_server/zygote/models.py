# SPDX-License-Identifier: Apache-2.0
"""Model processes of a pool, which its zygote starts, limits and replaces.

A function's processes normally run as long as a front is connected. But if all functions share a memory budget, a
function's processes start at the function's first call, and end if other functions need the memory. The zygote replaces
a process that dies. If a function's processes die again and again, or cannot load the function, the zygote pauses
before it starts the next process. During this pause, only this function cannot be called.
"""

import secrets
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from updraft.errors import keep_start
from updraft.service.child import describe_exit
from updraft_server.ipc import model_packets
from updraft_server.ipc.function_list import DEATHS_IN_A_ROW
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import STACK_SIGNAL
from updraft_server.worker.model import control
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.model.process import EXIT_NOT_LOADED
from updraft_server.zygote.function_models import FunctionModels, Resident, victims
from updraft_server.zygote.model_channels import ModelChannels, Unwatch, Watch
from updraft_server.zygote.model_replica import ForkedModel, Replica, ReplicaState

_BUSY_LOOKS_SECONDS = 0.25
_IDLE_LOOKS_SECONDS = 1.0
# If a pause ends within this time, workers wait for its end. Otherwise the zygote refuses them.
_SHORT_PAUSE_SECONDS = 4.0
# For this time after a process has died, rows that must not be repeated are not joined with other rows. If these rows
# then kill another process, the pool knows whose rows they were.
_ALONE_SECONDS = 60.0


class ModelHost(Protocol):
    """Services of the zygote for its models."""

    def fork_model(self, model: str, function: BatchedFunction, number: int) -> ForkedModel:
        """Fork a process that loads the function, and tell the fronts about it; raises OSError."""

    def bury_model(self, model: str, process: ForkedModel) -> int:
        """Reap a process that has ended. Return its exit code, or the negative number of the signal that ended it."""

    def take_of_models(self, models: Mapping[str, ForkedModel]) -> Mapping[str, WorkerUsage]:
        """Return the usage of each of these processes, including all processes that it has started."""

    def tell_of_models(self, packet: model_packets.ModelEnded | model_packets.ModelFault) -> None:
        """Send the packet to every front."""


class Models:
    """All model processes of a zygote. Only the zygote's loop may use this object."""

    def __init__(
        self,
        functions: Sequence[BatchedFunction],
        host: ModelHost,
        watch: Watch,
        unwatch: Unwatch,
        *,
        budget_bytes: int,
        most_bytes: int,
    ) -> None:
        """Prepare the models. Call `start` to start the first processes.

        Args:
            functions: All batched functions.
            host: Services of the zygote.
            watch: Makes the zygote's loop call a function whenever a socket or descriptor can be read.
            unwatch: Undoes `watch`; idempotent.
            budget_bytes: Memory that all processes may hold together; 0 sets no limit.
            most_bytes: Memory that one process may hold.
        """
        self._functions = {(function.name, function.version): FunctionModels(function) for function in functions}
        self._host = host
        self._watch = watch
        self._unwatch = unwatch
        self._budget_bytes = budget_bytes
        self._most_bytes = most_bytes
        self.limits: model_packets.LimitModels | None = None
        """Limits of each process other than memory; None until a front has sent the limits."""
        self.model_channels = ModelChannels(self.connect, self.forget_worker, watch, unwatch)
        self._is_running = False
        self._next_look_seconds = 0.0

    def __bool__(self) -> bool:
        """Return whether the pool has batched functions."""
        return bool(self._functions)

    @property
    def pids(self) -> set[int]:
        """Process ids of the living processes."""
        return {replica.process.pid for _, replica in self._living()}

    @property
    def wait_seconds(self) -> float:
        """Time that the zygote's loop may wait for events before the next turn."""
        pauses = [
            each.backoff.pause_seconds
            for each in self._functions.values()
            if each.missing and each.backoff.pause_seconds and self._is_running
        ]
        look = [self._next_look_seconds - time.monotonic()] if self.pids else []
        return max(0.0, min([*pauses, *look, *self.model_channels.wait_seconds], default=_IDLE_LOOKS_SECONDS))

    def start(self) -> None:
        """Load functions for a new front. With a shared memory budget, load each function at its first call instead."""
        self._is_running = True
        for each in self._functions.values():
            # With a shared budget, load a function only when it is called: other functions may have to make room.
            each.is_wanted = not self._budget_bytes
            # A process of an earlier front may have finished a batch without reporting it.
            each.deaths_in_a_row = 0
        self._start_missing()

    def stop(self, how: str = "was ended with its front") -> None:
        """End all processes, because no front is left."""
        self._is_running = False
        for _, replica in list(self._living()):
            replica.state = ReplicaState.RETIRING
            replica.kill(how)

    def turn(self) -> None:
        """Do what is due: measure processes, answer workers, start missing processes, connect waiting workers."""
        now = time.monotonic()
        if now >= self._next_look_seconds:
            self._look(now)
        self.model_channels.turn()
        self._start_missing()
        for each in self._functions.values():
            self._serve_waiting(each)

    def close(self) -> None:
        """Close the sockets in a forked process. The zygote's own copies stay open."""
        self.model_channels.close()
        for _, replica in self._living():
            replica.process.control.close()

    def measured(self, packet: model_packets.MeasureModels) -> model_packets.MeasuredModels:
        """Return the usage and batches of the model processes of one packet's functions, from `packet.first` on."""
        end = packet.first + model_packets.FUNCTIONS_PER_PACKET
        usage = [each.usage() for each in list(self._functions.values())[packet.first : end]]
        return model_packets.MeasuredModels(packet.request, usage, are_last=end >= len(self._functions))

    def faults(self) -> Iterator[model_packets.ModelFault]:
        """Yield the faults of all functions that cannot be called."""
        for each in self._functions.values():
            if each.fault:
                yield model_packets.ModelFault(each.function.name, each.function.version, each.fault)

    def show_stack(self, model: str) -> None:
        """Make a process write its stacks. Do nothing if it has ended."""
        for _, replica in self._living():
            if replica.id == model:
                replica.signal(STACK_SIGNAL)

    def connect(self, worker: str, name: str, version: str) -> None:
        """Connect a worker, let it wait for a connection, or refuse it."""
        each = self._functions.get((name, version))
        if each is None:
            self.model_channels.refuse(worker, "has no model processes", may_retry=False)
            return
        each.wait(worker)
        self._start_missing()
        self._serve_waiting(each)

    def forget_worker(self, worker: str) -> None:
        """Remove a worker that has ended from the workers that wait for a connection."""
        for each in self._functions.values():
            each.wait_no_longer(worker)

    def _living(self) -> Iterator[tuple[FunctionModels, Replica]]:
        for each in self._functions.values():
            for replica in list(each.replicas.values()):
                yield each, replica

    def _serve_waiting(self, each: FunctionModels) -> None:
        # A process reads no packets while it works on a batch, so its socket may be full. Each turn tries again.
        each.serve(lambda worker: any(self.model_channels.connect(worker, replica) for replica in each.ready))
        if (
            each.ready
            or each.is_loading
            or each.backoff.pause_seconds <= (0 if each.cannot_load else _SHORT_PAUSE_SECONDS)
        ):
            return
        reason = f"cannot be called: {each.fault}; it is loaded again in {each.backoff.pause_seconds:.0f} seconds"
        each.serve(lambda worker: self._refuse(worker, reason, may_retry=not each.cannot_load))

    def _refuse(self, worker: str, reason: str, *, may_retry: bool) -> bool:
        self.model_channels.refuse(worker, reason, may_retry=may_retry)
        return True

    def _start_missing(self) -> None:
        """Start missing processes. Short memory is reserved for the function whose worker has waited longest."""
        if not self._is_running:
            return
        promised_bytes: int | None = None
        for each in sorted(self._functions.values(), key=lambda each: each.waiting_since_seconds):
            for number in each.missing:
                if each.backoff.pause_seconds:
                    break
                if not self._has_room_for(each, promised_bytes):
                    promised_bytes = (promised_bytes or 0) + each.last_memory_bytes
                    break
                self._start(each, number)

    def _start(self, each: FunctionModels, number: int) -> None:
        name = f"model-{secrets.token_hex(8)}"
        try:
            process = self._host.fork_model(name, each.function, number)
        except OSError as error:
            each.backoff.died(None)
            self._set_fault(each, f"its model process cannot be started: {error.strerror or error}")
            return
        limit_seconds = each.function.batching.load_timeout_seconds
        deadline_seconds = time.monotonic() + limit_seconds if limit_seconds else float("inf")
        replica = each.replicas[number] = Replica(name, number, process, deadline_seconds)
        if time.monotonic() < each.alone_until_seconds:
            replica.run_alone(each.alone_until_seconds)
        self._watch(process.pidfd, lambda: self._reap(each, replica))
        self._watch(process.control, lambda: self._listen(each, replica))

    def _listen(self, each: FunctionModels, replica: Replica) -> None:
        """Read all packets of a process. If the process was reaped in the same turn, no packets are left."""
        while replica.process.control.fileno() >= 0 and self._hear(each, replica):
            pass

    def _hear(self, each: FunctionModels, replica: Replica) -> bool:
        """Read one packet of a process. Return False if no further packet can be read now."""
        try:
            data = replica.process.control.recv(control.MAX_PACKET_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            # The process ended before it read all packets. The kernel reports this error once, and then delivers the
            # process's last packets.
            return True
        except OSError:
            data = b""
        if not data:
            # The process is ending, unless it has closed only this socket.
            self._unwatch(replica.process.control)
            replica.process.watchdog.hung_up()
            return False
        try:
            packet = control.decode(data)
        except PacketError:
            replica.kill("broke the protocol, and was ended")
            return False
        match packet:
            case control.Ready() if replica.state is ReplicaState.LOADING:
                replica.state = ReplicaState.READY
                replica.ready_seconds = time.monotonic()
                each.loads += 1
                # Measure at once, because the memory of this process decides how much is left for other functions.
                self._next_look_seconds = 0.0
                each.cannot_load = False
                if each.deaths_in_a_row < DEATHS_IN_A_ROW:
                    self._set_fault(each, "")
                self._serve_waiting(each)
            case control.LoadFailed(reason):
                replica.reason = f"could not load the function: {reason}"
            case control.Suspect(is_running):
                replica.has_suspect = is_running
            case control.State():
                replica.told = packet
                if replica.batches:
                    each.deaths_in_a_row = 0
                    self._set_fault(each, "")
        return True

    def _reap(self, each: FunctionModels, replica: Replica) -> None:
        if each.replicas.get(replica.number) is not replica:
            return
        # The last packets of the process may explain its end.
        self._listen(each, replica)
        self._unwatch(replica.process.pidfd)
        self._unwatch(replica.process.control)
        status = self._host.bury_model(replica.id, replica.process)
        replica.close()
        each.forget(replica)
        is_expected = replica.state is ReplicaState.RETIRING
        how = _how(replica, status)
        self.model_channels.tell_fate(replica.id, how)
        self._host.tell_of_models(model_packets.ModelEnded(replica.id, how, is_expected=is_expected))
        if not is_expected:
            each.deaths += 1
            each.alone_until_seconds = time.monotonic() + _ALONE_SECONDS
            for living in each.replicas.values():
                living.run_alone(each.alone_until_seconds)
            if not replica.has_suspect:
                # A death that suspect rows caused does not add a pause, because other callers would have to wait.
                each.backoff.died(replica.ready_seconds)
            each.cannot_load = replica.state is ReplicaState.LOADING
            each.deaths_in_a_row += replica.state is ReplicaState.READY
            if each.deaths_in_a_row >= DEATHS_IN_A_ROW:
                self._set_fault(
                    each, f"it has killed {each.deaths_in_a_row} model processes in a row, the last one {how}"
                )
            elif not each.ready:
                self._set_fault(each, f"its model process {how}")
        self._start_missing()
        self._serve_waiting(each)

    def _set_fault(self, each: FunctionModels, fault: str) -> None:
        fault = keep_start(fault, model_packets.MAX_FAULT_BYTES)
        if each.fault != fault:
            each.fault = fault
            self._host.tell_of_models(model_packets.ModelFault(each.function.name, each.function.version, fault))

    def _look(self, now_seconds: float) -> None:
        """Measure all processes, and end those that exceed a limit."""
        living = {replica.id: (each, replica) for each, replica in self._living()}
        is_busy = any(replica.connections or replica.state is ReplicaState.LOADING for _, replica in living.values())
        self._next_look_seconds = now_seconds + (_BUSY_LOOKS_SECONDS if is_busy else _IDLE_LOOKS_SECONDS)
        taken = self._host.take_of_models({name: replica.process for name, (_, replica) in living.items()})
        for name, (each, replica) in living.items():
            take = taken[name]
            replica.memory_bytes = take.own_bytes
            batch_seconds = replica.batch_processor_seconds(take.processor_seconds)
            if replica.state is ReplicaState.READY:
                each.last_memory_bytes = replica.memory_bytes
            if replica.memory_bytes > self._most_bytes:
                replica.kill(
                    f"took {replica.memory_bytes} bytes of memory, the limit is {self._most_bytes}, and was ended:"
                    " raise --model-memory-bytes of the pool, or give it more memory"
                )
            elif self.limits is not None and (excess := self.limits.excess(take, batch_seconds)):
                replica.kill(excess)
            elif replica.state is ReplicaState.LOADING and now_seconds > replica.load_deadline_seconds:
                replica.kill(
                    f"did not load the function within {each.function.batching.load_timeout_seconds:g} seconds, and"
                    " was ended (load_timeout_seconds of Batching)"
                )
            elif how := replica.process.watchdog.broken():
                replica.kill(how)
        if self._budget_bytes and len(living) > 1:
            self._evict(self._held_bytes() - self._budget_bytes, now_seconds)

    def _has_room_for(self, each: FunctionModels, promised_bytes: int | None) -> bool:
        """Return whether another process of this function fits into the budget now. If not, retire other processes.

        If memory is promised to functions whose workers have waited longer, this call counts the promised memory as
        used, and retires no process.
        """
        if not self._budget_bytes or not any(self._living()):
            return True
        excess_bytes = self._held_bytes() + each.last_memory_bytes - self._budget_bytes
        if promised_bytes is not None:
            return excess_bytes <= 0 and excess_bytes - self._leaving_bytes() + promised_bytes <= 0
        if excess_bytes > 0:
            self._evict(excess_bytes, time.monotonic())
        return excess_bytes <= 0 or not any(self._living())

    def _held_bytes(self) -> int:
        """Return the memory of all processes. For a loading process, count at least what its function used before."""
        return sum(
            max(replica.memory_bytes, each.last_memory_bytes if replica.state is ReplicaState.LOADING else 0)
            for each, replica in self._living()
        )

    def _leaving_bytes(self) -> int:
        """Return the memory of processes that are retiring."""
        return sum(replica.memory_bytes for _, replica in self._living() if replica.state is ReplicaState.RETIRING)

    def _evict(self, excess_bytes: int, now_seconds: float) -> None:
        """Retire as many processes as needed, besides processes that are already retiring, to free `excess_bytes`."""
        ready = {r.id: (each, r) for each, r in self._living() if r.state is ReplicaState.READY}
        residents = [
            Resident(r.id, r.memory_bytes, r.connections, r.ready_seconds or 0.0, r.told.last_used_seconds)
            for _, r in ready.values()
        ]
        for name in victims(residents, excess_bytes - self._leaving_bytes(), now_seconds):
            each, replica = ready[name]
            each.evictions += replica.retire()


def _how(replica: Replica, status: int) -> str:
    # The recorded reason does not apply if the process ended in another way before it was killed.
    if replica.reason and status in (-signal.SIGKILL, EXIT_NOT_LOADED):
        return replica.reason
    if replica.state is ReplicaState.RETIRING and status == 0:
        return "made room for another function's"
    return describe_exit(status)
