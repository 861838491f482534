# SPDX-License-Identifier: Apache-2.0
"""Server of a writer's exchanges: it opens and runs each exchange, sends the receipt or the error, and cleans up."""

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import structlog

from updraft.errors import UpdraftError
from updraft.service.early_reads import EarlyReads
from updraft.service.exchange import (
    MessageLimits,
    first_message,
    schema_header,
    share_of,
    tenant_of,
    within_deadline,
)
from updraft.service.identity import Identity, Scope
from updraft.service.setting_names import SettingNames
from updraft.service.spans import TRACE_HEADER, Span, Tracer
from updraft.v1.write_pb2 import FooterFacts, Receipt, Timings
from updraft_writer.encoders.encoder import Footer
from updraft_writer.exchange import GivenUpError, WriteCall, WriteExchange
from updraft_writer.file_factory import FileFactory
from updraft_writer.metrics import WriterMetrics
from updraft_writer.open_file import OpenFile
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import Quota
from updraft_writer.replies import Replies
from updraft_writer.request import SERVICE, WriteRequest, checked_command, parse_command, with_schema
from updraft_writer.settings import ServeSettings

_WRITE = Scope.WRITE, "write files"

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Record:
    """Facts about an exchange for metrics and the log."""

    started: float
    span: Span
    format: str = ""
    encoder: str = ""
    outcome: str = "cancelled"
    reason: str = ""
    file: OpenFile | None = None
    closing: asyncio.Task[None] | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


@dataclass(eq=False, slots=True)
class Exchanges:
    """Server of exchanges. Each exchange runs in the task of its call."""

    quota: Quota
    files: OpenFiles
    factory: FileFactory
    settings: ServeSettings
    metrics: WriterMetrics
    tracer: Tracer
    early_reads: EarlyReads
    chart_values: SettingNames
    _closing: set[asyncio.Task[None]] = field(init=False, default_factory=set)

    async def serve(self, call: WriteCall) -> None:
        """Serve one exchange. If it fails, report the error to the client in-band, then raise UpdraftError."""
        with self.tracer.exchange("updraft.writer.file", call.header(TRACE_HEADER)) as span:
            await self._serve(call, span)

    async def check(self, encoded: bytes, identity: Identity) -> None:
        """Raise the error that any client would receive now for opening this file; change nothing."""
        identity.require(*_WRITE)
        command = checked_command(encoded)
        _log.info("a client asked whether the writer would open a file", path=command.path)
        self.files.check_open()
        self.files.check_full()
        await self.factory.check(command, identity.roots)

    async def _serve(self, call: WriteCall, span: Span) -> None:
        replies = Replies(call, max_message_bytes=self.settings.max_message_bytes)
        record = _Record(time.monotonic(), span)
        try:
            async with within_deadline(call, "file"):
                with self.chart_values.in_errors():
                    receipt = await self._write(call, replies, record)
            # Record the outcome before sending the receipt. A client that leaves after receiving the receipt has not
            # given up the file.
            record.outcome = "ok"
            call.record.describe(rows=receipt.rows, bytes=receipt.file_bytes)
            call.record.settle("ok")
            _raise_if_cancelled()
            await replies.receipt(receipt)
        except GivenUpError as given_up:
            record.outcome, record.reason = "aborted", str(given_up)
            call.record.settle("aborted")
            await self._let_go(record)
        except UpdraftError as error:
            record.outcome, record.reason = type(error).__name__, error.first_line()
            _raise_if_cancelled()
            # Record the error before sending it, because a client that has received the error may cancel the call.
            span.fail(error)
            call.record.fail(error)
            await replies.error(error)
            await self._let_go(record)
            raise
        finally:
            self.metrics.files.labels(record.format, record.encoder, record.outcome).inc()
            self.metrics.file_seconds.labels(record.format).observe(record.seconds)
            span.describe({"format": record.format, "encoder": record.encoder, "outcome": record.outcome})
            _log.info("exchange ended", outcome=record.outcome, reason=record.reason, seconds=round(record.seconds, 4))

    async def _write(self, call: WriteCall, replies: Replies, record: _Record) -> Receipt:
        request = await self._open(call)
        identity = request.log_context
        structlog.contextvars.bind_contextvars(**identity)
        record.span.describe(identity)
        file_format = str(request.command.WhichOneof("format"))
        call.record.describe(**identity, tenant=tenant_of(call, request.command.task), format=file_format)
        await call.record.opened()
        with ExitStack() as stack:
            place = stack.enter_context(self.files.place(request.share))
            file = record.file = await self.factory.make(request, replies, place, span=record.span)
            record.format, record.encoder = file_format, file.encoder.name
            # From here on, the file keeps its place until the file is closed, however long the storage takes.
            stack.callback(self._close_later, file, stack.pop_all(), record)
            self.files.add(file)
            stack.callback(asyncio.create_task(replies.keep_alive()).cancel)
            await file.open()
            exchange = WriteExchange(
                call=call,
                replies=replies,
                request=request,
                file=file,
                quota=self.quota,
                settings=self.settings,
                metrics=self.metrics,
                span=record.span,
                must_give_way=partial(self.files.must_give_way, place),
            )
            footer = await exchange.run()
            return self._receipt(exchange, footer, record)

    async def _open(self, call: WriteCall) -> WriteRequest:
        settings = self.settings
        limits = MessageLimits(SERVICE, settings.max_message_bytes)
        read = self.early_reads.of(call)
        first = await first_message(read, limits)
        call.identity.require(*_WRITE)
        command = parse_command(first)
        header = await schema_header(read, first, limits)
        # Use a thread, because a schema of many columns takes a third of a second.
        share, roots = share_of(call, tenant_of(call, command.task)), call.identity.roots
        return await asyncio.to_thread(with_schema, command, header, share=share, roots=roots)

    async def _let_go(self, record: _Record) -> None:
        """Wait until a failed file is cleaned up, or until its storage stops answering.

        The call must not end earlier, because the client may remove the file's directory once the call has ended.
        """
        if record.closing is None or record.file is None:
            return
        stuck = asyncio.create_task(record.file.stuck.wait())
        await asyncio.wait({record.closing, stuck}, return_when=asyncio.FIRST_COMPLETED)
        stuck.cancel()
        if record.closing.done():
            record.closing.result()

    def _close_later(self, file: OpenFile, place: ExitStack, record: _Record) -> None:
        """Close a file in a separate task: the call may be cancelled before the file has released everything."""
        task = record.closing = asyncio.create_task(self._close(file, place))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, file: OpenFile, place: ExitStack) -> None:
        with place:
            try:
                await file.close()
            finally:
                self.files.remove(file)

    def _receipt(self, exchange: WriteExchange, footer: Footer, record: _Record) -> Receipt:
        progress, encoder, metrics = exchange.file.progress, exchange.file.encoder, self.metrics
        # Ask the encoder for its name at the end, because the file may have moved from the GPU to the CPU.
        record.encoder = encoder.name
        metrics.encoder_reasons.labels(encoder.reason.kind.value).inc()
        record.span.describe({"rows": progress.rows, "file_bytes": progress.stored_bytes})
        metrics.rows.inc(progress.rows)
        metrics.raw_bytes.inc(progress.raw_bytes)
        metrics.stored_bytes.inc(progress.stored_bytes)
        metrics.encode_seconds.inc(progress.encode_seconds)
        metrics.store_seconds.inc(progress.store_seconds)
        return Receipt(
            path=exchange.request.command.path,
            rows=progress.rows,
            batches=progress.batches,
            raw_bytes=progress.raw_bytes,
            file_bytes=progress.stored_bytes,
            footer=FooterFacts(
                row_groups=footer.row_groups, rows=footer.rows, dictionary_columns=footer.dictionary_columns
            ),
            columns=footer.columns,
            encoder=encoder.name,
            encoder_reason=str(encoder.reason),
            timings=Timings(
                admission_milliseconds=round(1000 * exchange.admission_seconds),
                encode_milliseconds=round(1000 * progress.encode_seconds),
                store_milliseconds=round(1000 * progress.store_seconds),
                total_milliseconds=round(1000 * record.seconds),
            ),
        )


def _raise_if_cancelled() -> None:
    """Raise CancelledError if the client cancelled the call while the call waited for its file's outcome."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
