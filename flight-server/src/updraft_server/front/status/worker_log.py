# SPDX-License-Identifier: Apache-2.0
"""What workers print, in the front's log."""

import structlog

from updraft.service.telemetry import LOG_DROPS
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput

_log = structlog.get_logger(__name__)


def log_worker_output(output: WorkerOutput) -> None:
    """A line of a worker's output."""
    _log.info("worker output", worker=output.worker, line=output.line, **output.context)


def log_dropped_output(output: DroppedOutput) -> None:
    """Lines that were too many."""
    LOG_DROPS.add("flood", output.lines)
    _log.warning(
        "worker output was dropped: print less, or raise --output-lines-per-second",
        worker=output.worker,
        lines=output.lines,
        bytes=output.bytes,
        **output.context,
    )
