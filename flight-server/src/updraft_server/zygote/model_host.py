# SPDX-License-Identifier: Apache-2.0
"""Host of model processes: forks and buries them like workers, with their own sandboxes, directories and limits."""

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Mapping, Sequence

from updraft_server.ipc.model_packets import ModelEnded, ModelFault, ModelStarted
from updraft_server.linux.namespaces import memory_used_bytes
from updraft_server.linux.out_of_memory import OutOfMemoryScore
from updraft_server.linux.process_control import kill_group
from updraft_server.linux.process_trees import own_bytes, process_trees
from updraft_server.sandbox.worker_sandbox import WorkerSandbox
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.model.watchdog import Watchdog
from updraft_server.zygote.forked_worker import become_worker, pipe
from updraft_server.zygote.image import Image
from updraft_server.zygote.model_process_usage import ModelProcessUsage
from updraft_server.zygote.model_replica import ForkedModel
from updraft_server.zygote.scratch import ScratchDirectories

Tell = Callable[[ModelStarted | ModelEnded | ModelFault, Sequence[int]], None]


class ZygoteModelHost:
    """Services that a zygote offers its models."""

    def __init__(
        self,
        image: Image,
        scratch: ScratchDirectories,
        sandbox: WorkerSandbox,
        score: OutOfMemoryScore,
        lifeline: int,
        *,
        front_pid: Callable[[], int],
        close_others: Callable[[], None],
        tell: Tell,
    ) -> None:
        """Prepare to fork models.

        Args:
            image: Image that the zygote has loaded.
            scratch: Makes a directory for each process.
            sandbox: Entered in each process.
            score: Makes the kernel kill forked processes before the zygote when memory runs out.
            lifeline: Lifeline to the supervisor.
            front_pid: Returns the front's process id; 0 if it is in another PID namespace.
            close_others: Closes descriptors that a forked process must not have.
            tell: Sends a packet to the fronts, with descriptors for the one that reads output.
        """
        self._image = image
        self._scratch = scratch
        self._sandbox = sandbox
        self._score = score
        self._lifeline = lifeline
        self._front_pid = front_pid
        self._close_others = close_others
        self._tell = tell
        self._image_bytes = own_bytes()

    def fork_model(self, model: str, function: BatchedFunction, number: int) -> ForkedModel:
        """Fork a process that loads the function, and tell the fronts about it; raises OSError."""
        with contextlib.ExitStack() as descriptors, contextlib.ExitStack() as undo:
            scratch = self._scratch.make(model)
            undo.callback(self._scratch.discard, model)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            descriptors.enter_context(theirs)
            output_read, output_write = pipe(descriptors)
            stack_read, stack_write = pipe(descriptors)
            shared_memory = self._sandbox.new_shared_memory()
            if shared_memory is not None:
                undo.callback(os.close, shared_memory)
            watchdog = Watchdog()
            undo.callback(watchdog.close)
            with self._score.raised():
                pid = os.fork()
            if pid == 0:
                ours.close()
                become_worker(
                    theirs,
                    output_write,
                    stack_write,
                    self._lifeline,
                    self._close_others,
                    lambda: self._sandbox.enter(self._front_pid(), shared_memory, scratch),
                    functools.partial(self._image.run_model, function, number, scratch, watchdog),
                    name="updraft-model",
                )
            # If this fails, the child is ended as an orphan.
            pidfd = os.pidfd_open(pid)
            undo.pop_all()
            watchdog.hide_from_forks()
            self._tell(ModelStarted(model, function.name, function.version, pid), [output_read, stack_read])
            return ForkedModel(pid, pidfd, ours, watchdog, shared_memory)

    def bury_model(self, model: str, process: ForkedModel) -> int:
        """Reap a process that has ended; returns its exit code, or minus the signal that ended it."""
        # Until the process is reaped, its id still names its own group: kill what its function has started.
        kill_group(process.pid)
        _, wait_status = os.waitpid(process.pid, 0)
        self._scratch.discard(model)
        return os.waitstatus_to_exitcode(wait_status)

    def take_of_models(self, models: Mapping[str, ForkedModel]) -> Mapping[str, ModelProcessUsage]:
        """Return what each of these processes uses, including everything it has started."""
        trees = process_trees(process.pid for process in models.values())
        take = {}
        for model, process in models.items():
            tree = trees[process.pid]
            files_bytes = 0 if process.shared_memory is None else memory_used_bytes(process.shared_memory)
            # The tree's own bytes already include mapped files in /dev/shm, so add only the unmapped ones.
            held_bytes = max(0, tree.own_bytes - self._image_bytes) + max(0, files_bytes - tree.shared_bytes)
            take[model] = ModelProcessUsage(
                held_bytes, len(tree.ticks), tree.threads, *self._scratch.size(model), tree.processor_seconds
            )
        return take

    def tell_of_models(self, packet: ModelEnded | ModelFault) -> None:
        """Send the packet to every front."""
        self._tell(packet, ())
