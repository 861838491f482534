# SPDX-License-Identifier: Apache-2.0
"""Output of workers, in the front's log."""

import structlog

from updraft.service.telemetry import LOG_DROPS
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput

_log = structlog.get_logger(__name__)


def log_worker_output(output: WorkerOutput) -> None:
    """Log one line of a worker's output."""
    _log.info("worker output", worker=output.worker, line=output.line, **output.context)


def log_dropped_output(output: DroppedOutput) -> None:
    """Count and log lines of output that were dropped because a worker printed too many."""
    LOG_DROPS.add("flood", output.lines)
    _log.warning(
        "worker output was dropped: print less, or raise --output-lines-per-second",
        worker=output.worker,
        lines=output.lines,
        bytes=output.bytes,
        **output.context,
    )
