# SPDX-License-Identifier: Apache-2.0
"""Who has used a service, from where and for what: two records of each exchange, one of each refusal.

Records are JSON lines in a stream of their own. The first record of an exchange is made before its work, the second one
tells how that ended; a service that is killed in between leaves the first.
"""

import asyncio
import contextlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from updraft.errors import PoolUnavailableError, UnauthenticatedError, UpdraftError
from updraft.service.audit_file import AuditFile
from updraft.service.lifecycle import StartError
from updraft.service.log_lines import shortened
from updraft.service.metrics import Metrics

Fact = str | int | float | list[str]

ENDED, REFUSED = "ended", "refused"
"""What the last record of a call is of."""

_WRITE_TIMEOUT_SECONDS = 5.0
_RETRY_AFTER_MILLISECONDS = 1000
# Whoever proves nothing can call as often as it likes, and would fill the log.
_STRANGERS_A_SECOND = 10
_MOST_CHARACTERS = 1024


class Audit:
    """The audit log of a service; without a file it does nothing."""

    def __init__(self, service: str, path: Path | None = None, *, refuses: bool = True) -> None:
        """Raises StartError when the file cannot be opened.

        Args:
            service: What messages call the service: "pool" or "writer".
            path: `updraft.service.audit_file`; None: nothing is recorded.
            refuses: Whether exchanges are refused while records cannot be written; else records are lost and counted.
        """
        self._service = service
        self._refuses = refuses
        self._strangers, self._second = 0, 0
        try:
            self._file = AuditFile(path, keeps=refuses) if path is not None else None
        except OSError as error:
            raise StartError(f"--audit-file {path} cannot be opened: {error.strerror}") from error

    def close(self) -> None:
        """Write what waits, for two seconds at most."""
        if self._file is not None:
            self._file.close()

    def show_in(self, metrics: Metrics) -> None:
        """Add the audit log's metrics."""
        metrics.count_by_label(
            f"{metrics.prefix}_audit_records",
            "Records of the audit log, by outcome: written, lost. None without --audit-file.",
            "outcome",
            lambda: self._file.lines if self._file is not None else {},
        )
        metrics.watch(
            f"{metrics.prefix}_audit_failing",
            "1 while the audit log cannot be written, else 0.",
            lambda: self._file is not None and bool(self._file.failure),
        )

    def call(self, what: str, peer: str) -> "CallRecord":
        """The records of one call, from now on.

        Args:
            what: "exchange", "action", or "question" for what there is.
            peer: Whose address it comes from, as gRPC says it.
        """
        return CallRecord(self, {"service": self._service, "call": what, "peer": peer}) if self._file else NO_RECORD

    async def before_work(self, facts: dict[str, Fact]) -> None:
        """Record what begins; raises PoolUnavailableError where that has to be written first, and cannot be."""
        assert self._file is not None
        line = _line("opened", facts)
        if not self._refuses:
            self._file.write(line)
            return
        reason = self._file.failure
        if not reason:
            loop, written = asyncio.get_running_loop(), asyncio.Event()

            def tell() -> None:
                # The service may have ended meanwhile.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(written.set)

            self._file.write(line, tell)
            try:
                async with asyncio.timeout(_WRITE_TIMEOUT_SECONDS):
                    await written.wait()
            except TimeoutError:
                reason = self._file.failure or f"no answer within {_WRITE_TIMEOUT_SECONDS:g} seconds"
        if reason:
            raise PoolUnavailableError(
                f"this {self._service} does nothing that it cannot record, and its audit log cannot be written "
                f"({reason}): try another one, or ask its operator (--audit-file, --audit-failure)",
                retry_after_milliseconds=_RETRY_AFTER_MILLISECONDS,
            )

    def ended(self, event: str, facts: dict[str, Fact], error: BaseException | None) -> None:
        """Record an end, or a refusal."""
        assert self._file is not None
        if event == REFUSED and isinstance(error, UnauthenticatedError):
            second = int(time.monotonic())
            if second != self._second:
                unrecorded = self._strangers - _STRANGERS_A_SECOND
                if unrecorded > 0:
                    facts["unrecorded_before"] = unrecorded
                self._second, self._strangers = second, 0
            self._strangers += 1
            if self._strangers > _STRANGERS_A_SECOND:
                return
        self._file.write(_line(event, facts))


class CallRecord:
    """What is recorded of one call; a context manager around it."""

    def __init__(self, audit: Audit | None, facts: dict[str, Fact]) -> None:
        self._audit = audit
        self._facts = facts
        self._outcome = ""
        self._failure: UpdraftError | None = None
        self._is_opened = False
        self._began_seconds = time.monotonic()
        if audit is not None:
            facts["id"] = uuid4().hex

    @property
    def is_kept(self) -> bool:
        """Whether there is an audit log: what is costly to find out is not worth it else."""
        return self._audit is not None

    def describe(self, **facts: Fact) -> None:
        """Add to what all later records of the call say."""
        if self._audit is not None:
            self._facts.update(facts)

    def settle(self, outcome: str) -> None:
        """Say how the work ended, whatever becomes of the call itself."""
        if self._audit is not None:
            self._outcome = outcome

    def fail(self, error: UpdraftError) -> None:
        """Say what the work ended with, whatever becomes of the call itself."""
        self._failure = error

    def forget(self) -> None:
        """Record nothing: the call only asks."""
        self._audit = None

    async def opened(self) -> None:
        """The work begins once this returns; raises PoolUnavailableError."""
        if self._audit is not None:
            await self._audit.before_work(self._facts)
            self._is_opened = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if self._audit is None:
            return
        error = self._failure or error
        self._facts["outcome"] = self._outcome or _outcome(error)
        if isinstance(error, UpdraftError):
            self._facts["reason"] = error.first_line()
        self._facts["seconds"] = round(time.monotonic() - self._began_seconds, 4)
        is_refused = error is not None and not self._is_opened
        self._audit.ended(REFUSED if is_refused else ENDED, self._facts, error)


NO_RECORD = CallRecord(None, {})
"""Of calls to a service that has no audit log."""


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "ok"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _line(event: str, facts: dict[str, Fact]) -> bytes:
    """JSON with the characters of ASCII alone: a client's texts begin no line."""
    cut = {name: shortened(fact, _MOST_CHARACTERS) if isinstance(fact, str) else fact for name, fact in facts.items()}
    return json.dumps({"time": datetime.now(UTC).isoformat(), "event": event, **cut}).encode()
