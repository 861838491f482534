# SPDX-License-Identifier: Apache-2.0
"""Asynchronous sink on a blocking storage. Each step runs on a thread, and is repeated if `sink` allows it.

The caller of `write` must keep the bytes reserved until the write has ended.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, field

import structlog

from updraft.errors import SinkError
from updraft_writer.futures import ignore_failure
from updraft_writer.pieces import Piece
from updraft_writer.sinks.sink import Standing, Step, Storage, may_be_repeated, sink_error

# The pauses double, so five attempts take three seconds. In this time a name node or a proxy can restart. If the
# storage stays unavailable, a task has lost little time.
STORE_ATTEMPTS = 5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of attempts at a step, and the first pause between attempts. Each pause is twice the previous pause."""

    attempts: int = field(default_factory=lambda: STORE_ATTEMPTS)
    first_pause_seconds: float = 0.2


@dataclass(eq=False)
class StoredSink:
    """File on a storage. Its steps run on `threads`, one at a time.

    If a step takes longer than `silence_seconds`, the sink calls `on_silence`; 0 sets no limit.
    """

    storage: Storage
    path: str
    threads: Executor
    retry: RetryPolicy
    _: KW_ONLY
    silence_seconds: float = 0.0
    on_silence: Callable[[SinkError], None] = lambda _error: None
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _silence: SinkError | None = field(init=False, default=None)
    _running: asyncio.Future[None] | None = field(init=False, default=None)

    async def open(self) -> None:
        """Create the hidden file; raises SinkError."""
        await self._run(Step.CREATE, self.storage.open)

    async def write(self, piece: Piece) -> None:
        """Store a piece; raises SinkError."""
        await self._run(Step.WRITE, lambda: self.storage.write(piece))

    async def publish(self) -> None:
        """Complete the file and give it its final name; raises SinkError, whose message says what is at the path."""
        await self._run(Step.COMPLETE, self.storage.complete)
        await self._run(Step.PUBLISH, self.storage.publish)

    async def discard(self) -> None:
        """Remove the hidden file, or log that the file remains."""
        try:
            await self._run(Step.DISCARD, self.storage.discard)
        except SinkError as error:
            _log.warning("an unfinished file remains under its hidden name", path=self.path, reason=error.message)

    async def _run(self, step: Step, action: Callable[[], None]) -> None:
        if self._silence is not None and step is not Step.DISCARD:
            # The file has failed: a step that returns late must not lead to publication.
            raise self._silence
        pause_seconds = self.retry.first_pause_seconds
        for attempt in range(1, self.retry.attempts + 1):
            try:
                await self._on_thread(step, action)
            except OSError as error:
                if attempt == self.retry.attempts or not may_be_repeated(step, error):
                    raise sink_error(step, self.path, error) from error
                _log.warning("the storage failed: trying again", step=step.value, path=self.path, reason=str(error))
                await self.pause(pause_seconds)
                pause_seconds *= 2
            else:
                return

    async def _on_thread(self, step: Step, action: Callable[[], None]) -> None:
        # If the caller of the previous step was cancelled, that step's thread may still be running.
        if self._running is not None and not self._running.done():
            await asyncio.wait({self._running})
        loop = asyncio.get_running_loop()
        begun = threading.Event()

        def run() -> None:
            begun.set()
            action()

        self._running = loop.run_in_executor(self.threads, run)
        self._running.add_done_callback(ignore_failure)
        seconds = self.silence_seconds
        alarm = loop.call_later(seconds, self._tell_silence, step, begun) if seconds else None
        try:
            await asyncio.shield(self._running)
        finally:
            if alarm is not None:
                alarm.cancel()

    def _tell_silence(self, step: Step, begun: threading.Event) -> None:
        """Fail the file. The step continues and keeps its memory, because its thread cannot be interrupted."""
        standing = Standing.UNKNOWN if step is Step.PUBLISH and begun.is_set() else Standing.UNPUBLISHED
        hanging = "the storage has not answered"
        what = hanging if begun.is_set() else "slow storage operations of other files have occupied all storage threads"
        self._silence = SinkError(
            f"cannot {step.value} {self.path}: {what} for {self.silence_seconds:g} seconds "
            f"(--storage-silence-seconds of the writer); {standing.value}"
        )
        _log.warning("the storage is silent", step=step.value, path=self.path, seconds=self.silence_seconds)
        self.on_silence(self._silence)
