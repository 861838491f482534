# SPDX-License-Identifier: Apache-2.0
"""Commands `updraft-server serve`, `front` and `workers`: each makes this process supervise a pool or half of one."""

import contextlib
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from updraft.service.lossy_streams import protect_standard_streams
from updraft_server.linux.hostile_trees import empty_directory
from updraft_server.linux.process_control import adopt_orphans, hide_memory
from updraft_server.settings import FrontSettings, SeparateFrontSettings, SeparateWorkersSettings, ServeSettings
from updraft_server.supervisor.programs import FrontSupervisor, PoolSupervisor, WorkersSupervisor
from updraft_server.supervisor.runtime_directory import claimed
from updraft_server.supervisor.supervisor import SIGNALS
from updraft_server.supervisor.zygote_settings import SCRATCH

# Files still left after this time are removed when a pool starts here again.
_CLEARING_SECONDS = 10.0


def supervise(settings: ServeSettings) -> int:
    """Run a whole pool until it has drained or gives up; returns the exit status."""
    with (
        _supervising(settings.runtime_directory, ["front", "workers"]) as directory,
        _neighbours_token(settings, directory) as token,
        _clearing(directory / SCRATCH),
    ):
        return PoolSupervisor(settings, directory, token).run()


def supervise_front(settings: SeparateFrontSettings) -> int:
    """Run a pool's front until it has drained or gives up; returns the exit status."""
    with (
        _supervising(settings.runtime_directory, ["front"], group_may_read=True) as directory,
        # The workers' container can read the runtime directory, so the token must be in another directory.
        tempfile.TemporaryDirectory(prefix="updraft-", ignore_cleanup_errors=True) as unseen,
        _neighbours_token(settings, Path(unseen)) as token,
    ):
        return FrontSupervisor(settings, directory, token).run()


def supervise_workers(settings: SeparateWorkersSettings) -> int:
    """Run a pool's workers until a signal asks them to stop and their front has gone; returns the exit status."""
    with _supervising(settings.runtime_directory, ["workers"]) as directory, _clearing(directory / SCRATCH):
        return WorkersSupervisor(settings, directory, settings.front_directory.absolute()).run()


@contextlib.contextmanager
def _supervising(directory: Path | None, halves: Sequence[str], *, group_may_read: bool = False) -> Iterator[Path]:
    """Make this process the supervisor of these halves of a pool; yields `directory`, or a temporary directory."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # Protect the streams before hide_memory makes /proc/self inaccessible. Children inherit the descriptors.
    protect_standard_streams()
    adopt_orphans()
    hide_memory()
    with contextlib.ExitStack() as stack:
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="updraft-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(temporary))
        stack.enter_context(claimed(directory, halves, group_may_read=group_may_read))
        yield directory


@contextlib.contextmanager
def _neighbours_token(settings: FrontSettings, directory: Path) -> Iterator[Path | None]:
    """Make a file with the token that this machine's users need for metrics and status; None if they need no token.

    Workers must not be able to read the directory.
    """
    if not settings.metrics_listen or settings.metrics_token_file is not None or settings.session_functions == "off":
        yield None
        return
    path = directory.absolute() / "metrics-token"
    # A killed pool may have left a file that belongs to another user.
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(secrets.token_urlsafe(32) + "\n")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _clearing(scratch: Path) -> Iterator[None]:
    """Remove the files that functions have left. The block must have ended all processes of functions."""
    try:
        yield
    finally:
        _clear(scratch)


def _clear(scratch: Path) -> None:
    """Remove the files that functions have left; their processes have ended."""
    with contextlib.suppress(OSError):
        if not empty_directory(str(scratch), within_seconds=_CLEARING_SECONDS):
            sys.stderr.write(f"updraft-server: cannot remove all files in {scratch}\n")
