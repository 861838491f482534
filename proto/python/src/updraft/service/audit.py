# SPDX-License-Identifier: Apache-2.0
"""Audit log of a service: who used it, from where and for what.

Records are JSON lines in a separate stream. Each exchange leaves two records: the first is written before the work
starts, and the second says how the work ended. If the service is killed in between, only the first record exists. Each
refusal leaves one record.
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
from updraft.service.metrics import Metrics
from updraft.service.telemetry import shortened

Fact = str | int | float | list[str]

ENDED, REFUSED = "ended", "refused"
"""Event names of a call's last record."""

_WRITE_TIMEOUT_SECONDS = 5.0
_RETRY_AFTER_MILLISECONDS = 1000
# Unauthenticated callers can call as often as they like; without this limit, their records could fill the log.
_STRANGERS_A_SECOND = 10
_MOST_CHARACTERS = 1024


class Audit:
    """Audit log of a service; without a file it does nothing."""

    def __init__(self, service: str, path: Path | None = None, *, refuses: bool = True) -> None:
        """Open the log; raise StartError if the file cannot be opened.

        Args:
            service: Name of the service in records and errors: "pool" or "writer".
            path: File of the log (`updraft.service.audit_file`), or None to record nothing.
            refuses: Whether to refuse exchanges while records cannot be written. If false, exchanges go on, and records
                that cannot be written are lost and counted.
        """
        self._service = service
        self._refuses = refuses
        self._strangers, self._second = 0, 0
        try:
            self._file = AuditFile(path, keeps=refuses) if path is not None else None
        except OSError as error:
            raise StartError(f"--audit-file {path} cannot be opened: {error.strerror}") from error

    def close(self) -> None:
        """Write waiting records, for two seconds at most."""
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
        """Start the record of one call.

        Args:
            what: "exchange"; "action"; or "question", which lists flights or actions, or describes a flight.
            peer: The client's address, as gRPC prints it.
        """
        return CallRecord(self, {"service": self._service, "call": what, "peer": peer}) if self._file else NO_RECORD

    async def before_work(self, facts: dict[str, Fact]) -> None:
        """Record the start of the work.

        Raises:
            PoolUnavailableError: The log refuses unrecorded work and the record cannot be written.
        """
        assert self._file is not None
        line = _line("opened", facts)
        if not self._refuses:
            self._file.write(line)
            return
        reason = self._file.failure
        if not reason:
            loop, written = asyncio.get_running_loop(), asyncio.Event()

            def tell() -> None:
                # The loop may have been closed by now.
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
                f"this {self._service} refuses work that it cannot record, and it cannot write its audit log "
                f"({reason}): try another one, or ask its operator (--audit-file, --audit-failure)",
                retry_after_milliseconds=_RETRY_AFTER_MILLISECONDS,
            )

    def ended(self, event: str, facts: dict[str, Fact], error: BaseException | None) -> None:
        """Record the end of a call, or its refusal. Refusals of unauthenticated callers are limited to ten a second."""
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
    """Record of one call; a context manager around the call."""

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
        """Whether this call is recorded; if not, skip facts that are expensive to compute."""
        return self._audit is not None

    def describe(self, **facts: Fact) -> None:
        """Add facts to all later records of the call."""
        if self._audit is not None:
            self._facts.update(facts)

    def settle(self, outcome: str) -> None:
        """Set the outcome of the work; the record keeps this outcome even if the call ends differently."""
        if self._audit is not None:
            self._outcome = outcome

    def fail(self, error: UpdraftError) -> None:
        """Set the error of the work; the record keeps this error even if the call ends differently."""
        if self._audit is not None:
            self._failure = error

    def forget(self) -> None:
        """Drop the record, because the call only reads information."""
        self._audit = None

    async def opened(self) -> None:
        """Record the start of the work; the work may begin after this method has returned.

        Raises:
            PoolUnavailableError: The log refuses unrecorded work and the record cannot be written.
        """
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
"""Record of calls to a service that has no audit log."""


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "ok"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _line(event: str, facts: dict[str, Fact]) -> bytes:
    """Return a record as ASCII-only JSON, so that text from a client cannot start a new line."""
    cut = {name: shortened(fact, _MOST_CHARACTERS) if isinstance(fact, str) else fact for name, fact in facts.items()}
    return json.dumps({"time": datetime.now(UTC).isoformat(), "event": event, **cut}).encode()
