# SPDX-License-Identifier: Apache-2.0
"""Verdict on a failed exchange: the error for its client, and who is to blame.

The relay knows what the worker reported, the zygote knows how the worker ended, and the last measurement says how much
memory it held. Only `verdict` combines the three; it has no state and no clock.
"""

from dataclasses import dataclass

from updraft.errors import FunctionLoadError, UpdraftError, WorkerError
from updraft_server.front.limits.last_memory_use import LastMemoryUse
from updraft_server.front.relay.relay import RelayEnd
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.worker_events import WorkerDeath


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one failed exchange."""

    error: UpdraftError
    """Error that the client gets."""
    worker_died: bool
    """Whether the worker died before it could report the error."""
    blames_function: bool
    """Whether the function killed its worker or exceeded a limit, which hold-back and health count."""
    blames_rows: bool
    """Whether the rows of this exchange alone killed a model process, which the tenant's hold-back counts."""
    load_failed: bool
    """Whether a registered function that was admitted could not be loaded, which its health shows."""
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
    # The zygote would have reported how the worker ended, but it is gone too.
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
