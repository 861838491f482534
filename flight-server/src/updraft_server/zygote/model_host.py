# SPDX-License-Identifier: Apache-2.0
"""Host of model processes: forks and reaps them like workers, with their own sandboxes, directories and limits."""

import contextlib
import functools
import socket
from collections.abc import Callable, Mapping, Sequence

from updraft_server.ipc.model_packets import ModelEnded, ModelFault, ModelStarted
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.linux.descendants import reap
from updraft_server.linux.process_trees import own_bytes, process_trees
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.model.watchdog import Watchdog
from updraft_server.zygote.forks import Forks
from updraft_server.zygote.image import Image
from updraft_server.zygote.model_replica import ForkedModel
from updraft_server.zygote.scratch import ScratchDirectories
from updraft_server.zygote.workers import usage

Tell = Callable[[ModelStarted | ModelEnded | ModelFault, Sequence[int]], None]


class ZygoteModelHost:
    """Services of a zygote for its models."""

    def __init__(
        self, image: Image, forks: Forks, scratch: ScratchDirectories, *, front_pid: Callable[[], int], tell: Tell
    ) -> None:
        """Prepare to fork models.

        Args:
            image: Image that the zygote has loaded.
            forks: Forks the processes.
            scratch: Manages the scratch directories of the processes.
            front_pid: Returns the front's process id; 0 if the front is in another PID namespace.
            tell: Sends a packet to the fronts. Any descriptors are for the front that reads the processes' output.
        """
        self._image = image
        self._forks = forks
        self._scratch = scratch
        self._front_pid = front_pid
        self._tell = tell
        self._image_bytes = own_bytes()

    def fork_model(self, model: str, function: BatchedFunction, number: int) -> ForkedModel:
        """Fork a process that loads the function, and tell the fronts about it; raises OSError."""
        with contextlib.ExitStack() as descriptors, contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            descriptors.enter_context(theirs)
            watchdog = Watchdog()
            undo.callback(watchdog.close)
            run = functools.partial(self._image.run_model, function, number, watchdog)
            forked = self._forks.fork(model, theirs, self._front_pid(), run, descriptors, title="updraft-model")
            undo.pop_all()
            watchdog.hide_from_forks()
            started = ModelStarted(model, function.name, function.version, forked.pid)
            self._tell(started, [forked.output, forked.stack])
            return ForkedModel(forked.pid, forked.pidfd, ours, watchdog, forked.shared_memory)

    def bury_model(self, model: str, process: ForkedModel) -> int:
        """Reap a process that has ended. Return its exit code, or the negative number of the signal that ended it."""
        status = reap(process.pid)
        self._scratch.discard(model)
        return status

    def take_of_models(self, models: Mapping[str, ForkedModel]) -> Mapping[str, WorkerUsage]:
        """Return the usage of each of these processes, including all processes that it has started."""
        trees = process_trees(process.pid for process in models.values())
        return {
            model: usage(trees[process.pid], process.shared_memory, self._image_bytes, self._scratch.size(model))
            for model, process in models.items()
        }

    def tell_of_models(self, packet: ModelEnded | ModelFault) -> None:
        """Send the packet to every front."""
        self._tell(packet, ())
