# SPDX-License-Identifier: Apache-2.0
"""Verdict on a failed exchange: the error for its client, and who is to blame.

The relay knows what the worker reported, the zygote knows how the worker ended, and the last measurement says how much
memory the worker used. The function `verdict` combines these three; it has no state and no clock.

If the pool loses all workers at once, the kernel has killed them together, and no process is left to report the cause.
The front then infers from the last measurement which function most likely used up the memory. The error says that this
is an inference.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from updraft.errors import FunctionLoadError, UpdraftError, WorkerError
from updraft_server.front.relay.relay import RelayEnd
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.worker_events import WorkerDeath

# If workers used less than this share of the memory, assume another cause, such as an eviction.
_LEAST_SHARE = 0.5


class _Held(NamedTuple):
    first_bytes: int
    """Memory at the first measurement of the current uninterrupted series."""
    last_bytes: int

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes


class LastMemoryUse:
    """Memory that workers with an exchange used when they were last measured."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._were_short = False
        self._largest_grower = ""

    def measured(self, usage: Mapping[str, WorkerUsage], there_is_bytes: int) -> None:
        """Record a measurement. Ignore an empty one: it means that the workers are lost.

        Args:
            usage: Usage of all workers that have an exchange, by worker.
            there_is_bytes: Memory that is available to all workers together.
        """
        if not usage:
            return
        self._held = {
            worker: _Held(self._held[worker].first_bytes if worker in self._held else used.own_bytes, used.own_bytes)
            for worker, used in usage.items()
        }
        self._were_short = sum(held.last_bytes for held in self._held.values()) > _LEAST_SHARE * there_is_bytes
        self._largest_grower = max(self._held, key=lambda worker: self._held[worker].grown_bytes)

    def is_blamed(self, worker: str) -> bool:
        """Return whether this worker, lost for an unknown reason, most likely caused the loss of all workers."""
        return self._were_short and worker == self._largest_grower

    def inference(self, worker: str, function: str) -> str:
        """Return a hint for the error of an exchange whose worker was lost for an unknown reason; may be empty."""
        if not self._were_short or worker not in self._held:
            return ""
        if not self.is_blamed(worker):
            return " (inferred: the workers ran out of memory because of another exchange)"
        held = self._held[worker]
        return (
            f" (inferred: the workers ran out of memory, and the function {function} grew most, by "
            f"{held.grown_bytes} bytes to {held.last_bytes}: send smaller batches, or give the workers more memory)"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one failed exchange."""

    error: UpdraftError
    """Error that the client gets."""
    worker_died: bool
    """Whether the worker died before it could report the error."""
    blames_function: bool
    """Whether the function killed its worker or exceeded a limit. Hold-back and health count these failures."""
    blames_rows: bool
    """Whether the rows of this exchange alone killed a model process. The tenant's hold-back counts this."""
    load_failed: bool
    """Whether a registered function that was admitted could not be loaded. Its health shows this."""
    exhausted_container: bool
    """Whether the function most likely used up the memory, so that the kernel killed all workers."""


def verdict(error: UpdraftError, relay: RelayEnd, death: WorkerDeath | None, memory: LastMemoryUse) -> Verdict:
    """Return the verdict on an exchange that has failed.

    Args:
        error: Error that ended the relay.
        relay: State in which the relay ended.
        death: How the worker ended; None if it still runs.
        memory: Last measured memory of the workers, for a death with an unknown cause.
    """
    request = relay.request
    if relay.lost_worker and death is not None:
        error = _of_death(relay, death, memory)
    is_worker_error = isinstance(error, WorkerError)
    # The zygote, which would have reported how the worker ended, has died too.
    is_unobserved = death is not None and death.status is None
    exhausted = is_unobserved and memory.is_blamed(relay.worker)
    load_failed = isinstance(error, FunctionLoadError) and not request.is_session
    return Verdict(
        error,
        worker_died=is_worker_error and relay.reported is None,
        blames_function=relay.exceeded_limit or (exhausted if is_unobserved else death is not None),
        blames_rows=relay.reported is FrameKind.CRASHED and request.is_batched,
        load_failed=load_failed,
        exhausted_container=is_worker_error and exhausted,
    )


def _of_death(relay: RelayEnd, death: WorkerDeath, memory: LastMemoryUse) -> UpdraftError:
    """Return the error for a worker that ended without a report."""
    subject = relay.request.subject
    if relay.batch_timeout.explains(death):
        return relay.batch_timeout.error(subject)
    place = f", in {death.place}" if death.place else ""
    cause = memory.inference(relay.worker, relay.request.function) if death.status is None else ""
    return WorkerError(f"the worker {death} while it ran {subject}{place}{cause}", traceback=death.stack)
