# SPDX-License-Identifier: Apache-2.0
"""Runner of session functions: calls PySpark's worker and reports its outcome.

The front has already checked versions and environment.

PySpark formats tracebacks, so that PySpark's settings to hide or simplify tracebacks apply. A "simplified" traceback
stops at the first frame outside PySpark. So the runner first removes the frames of `updraft_server.worker` from the
traceback. The traceback then looks as if PySpark's serializers had run.
"""

import contextlib
import faulthandler
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import pyspark
import pyspark.worker
from pyspark.accumulators import _accumulatorRegistry
from pyspark.broadcast import _broadcastRegistry
from pyspark.serializers import BatchedSerializer
from pyspark.sql.pandas import serializers
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.taskcontext import BarrierTaskContext, TaskContext

from updraft.errors import FunctionRefusedError, InternalError, UserError
from updraft.functions.failures import qualified_name, whole_message
from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.linux.resource_limits import address_space
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.explanations import explain
from updraft_server.worker.process_state import restore_environment
from updraft_server.worker.pyspark import (
    formatted_exceptions,
    log_capture,
    pickled_stream,
    signed_rows,
    streams,
    struct_columns,
)
from updraft_server.worker.pyspark.adapters import load_adapter, minor_version
from updraft_server.worker.pyspark.connect_server import CONNECT_MODULES, ConnectServer
from updraft_server.worker.pyspark.connections import RUNNER, ByteStream, Connections
from updraft_server.worker.pyspark.host_services import HostServices
from updraft_server.worker.pyspark.init_message import KnownBroadcasts, Surroundings
from updraft_server.worker.pyspark.kinds import Kind, kinds_of
from updraft_server.worker.pyspark.log_capture import SESSION_VARIABLE, captured_logs
from updraft_server.worker.pyspark.shared_connections import SharedConnections
from updraft_server.worker.pyspark.streams import SessionStream, session_stream
from updraft_server.worker.pyspark.trailer import Trailer, parse_trailer
from updraft_server.worker.pyspark.worker_modules import HostFiles, load_module, run_main

_OWN_FILES = str(Path(__file__).parent.parent)


class ReportedException:
    """Last exception that PySpark's worker reported in this process."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def record(self, error: BaseException) -> None:
        """Record an exception that PySpark's worker is about to format, perhaps for the second time."""
        if error is self.error:
            return
        self.error = error
        _strip_chain(error)
        explain(error)

    def wrap(self, report: Callable[..., None]) -> Callable[..., None]:
        """Return a `handle_worker_exception` that also records the exception."""

        @functools.wraps(report)
        def handle_worker_exception(error: BaseException, *arguments: Any, **options: Any) -> None:
            self.record(error)
            report(error, *arguments, **options)

        return handle_worker_exception


def _strip_chain(error: BaseException) -> None:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = strip_own_frames(current.__traceback__)
        pending += [current.__cause__, current.__context__]


def strip_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of `updraft_server.worker`."""
    kept: list[TracebackType] = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
            kept.append(traceback)
        traceback = traceback.tb_next
    for link, following in zip(kept, [*kept[1:], None], strict=True):
        link.tb_next = following
    return kept[0] if kept else None


# Older versions of PySpark convert values in their serializers.
_CONVERSION_MODULE_SINCE = (4, 2)


class SessionRunner:
    """PySpark's worker code, prepared once per pool (in the zygote) and used once per exchange."""

    def __init__(self, files_directory: str, *, signed_functions_alone: bool = False) -> None:
        """Patch PySpark's worker; raises ImportError if this PySpark version is not supported.

        Args:
            files_directory: Spark's directory of distributed files, for exchanges that have no other.
            signed_functions_alone: Whether clients may send rows but no code.
        """
        self.pyspark_version: str = pyspark.__version__
        self._adapter = load_adapter(self.pyspark_version)
        self._kinds = kinds_of(minor_version(self.pyspark_version))
        self._reported = ReportedException()
        if hasattr(pyspark.worker, "handle_worker_exception"):
            pyspark.worker.handle_worker_exception = self._reported.wrap(pyspark.worker.handle_worker_exception)
        else:
            formatted_exceptions.install(pyspark.worker, self._reported.record)
        self._files_directory = files_directory
        self._broadcasts = KnownBroadcasts()
        self._host_files = HostFiles()
        self._host_services = HostServices()
        # Add the directory now. Otherwise PySpark would add it for each task, and drop all import caches each time.
        sys.path.insert(1, files_directory)
        streams.install(ArrowStreamSerializer)
        pickled_stream.install(BatchedSerializer)
        log_capture.install(pyspark.worker)
        if signed_functions_alone:
            signed_rows.install()
        _shorten_conversions(minor_version(self.pyspark_version))

    def run(
        self,
        assignment: Assignment,
        payload: exchange_pb2.SessionPayload,
        exchange: Exchange,
        received_seconds: float,
    ) -> exchange_pb2.Report:
        """Run the function over the exchange; raises UpdraftError."""
        if payload.HasField("worker_module"):
            return self._run_module(payload.worker_module, assignment, exchange)
        stream = session_stream(self._kind(assignment.eval_type), payload, exchange)
        message = self._adapter.compose(assignment, payload, self._surroundings(assignment))
        exchange.has_accumulators = lambda: bool(_accumulatorRegistry)
        with self._prepared(assignment, exchange):
            trailer = self._run_worker(message, stream, exchange)
        stream.close()
        return trailer.to_report(int(received_seconds * 1000))

    def _run_module(
        self, wanted: exchange_pb2.WorkerModule, assignment: Assignment, exchange: Exchange
    ) -> exchange_pb2.Report:
        """Run a worker exchange. The module reports its exceptions to Spark, and they also fail the exchange."""
        shares = wanted.name.startswith(CONNECT_MODULES)
        connections = (SharedConnections if shares else Connections)(exchange, wanted.opening)
        self._reported.error = None
        with contextlib.closing(connections):
            with (
                self._prepared(assignment, exchange),
                self._host_files.replaced(self._surroundings(assignment)),
                self._host_services.reached_by(connections),
            ):
                # PySpark sorts large RDDs in files in this directory.
                os.environ["SPARK_LOCAL_DIRS"] = tempfile.gettempdir()
                module = load_module(wanted.name)
                exchange.retires_worker = wanted.single_use
                if isinstance(connections, SharedConnections):
                    # The module waits for Spark between the batches of its query, and the clock would count this time.
                    exchange.clock.stop()
                    exchange.retires_worker = True
                    ConnectServer(connections)
                outcome = run_main(module, ByteStream(connections, RUNNER))
                if exchange.failure is not None:
                    raise exchange.failure
                # PySpark's worker also exits when the function has not read all of its input, which is not a failure.
                error = self._reported.error or outcome.error
                if error is not None and not isinstance(error, SystemExit):
                    raise UserError(whole_message(error), exception_class=qualified_name(error)) from None
            connections.finish(outcome.unread_bytes)
        return exchange_pb2.Report()

    @contextlib.contextmanager
    def _prepared(self, assignment: Assignment, exchange: Exchange) -> Iterator[None]:
        """Set up the process for the exchange's function, and restore the process after the block."""
        before = dict(os.environ)
        restore_environment({**before, **assignment.environment})
        try:
            with address_space(assignment.limits.worker_memory_bytes), _logs(assignment, exchange):
                yield
        finally:
            self._forget()
            restore_environment(before)

    def _surroundings(self, assignment: Assignment) -> Surroundings:
        paths = {int(number): path for number, path in assignment.broadcasts.items()}
        changes = self._broadcasts.change_to(assignment.task.owner.application_id, paths)
        return Surroundings(assignment.files_directory or self._files_directory, changes)

    def _run_worker(self, message: bytes, stream: SessionStream, exchange: Exchange) -> Trailer:
        self._reported.error = None
        ended_by: BaseException | None = None
        try:
            self._adapter.invoke(message, stream)
        except BaseException as error:  # usually a SystemExit, which must not end this process
            ended_by = error
        trailer = parse_trailer(bytes(stream.trailer), self._adapter.timings)
        if ended_by is not None or trailer.traceback is not None:
            # Send the results that came before the exception: the client may not need the missing results.
            stream.flush()
            self._raise_reported(trailer, ended_by, exchange)
        if not trailer.complete:
            raise InternalError("pyspark's worker ended without its end marker")
        return trailer

    def _raise_reported(self, trailer: Trailer, ended_by: BaseException | None, exchange: Exchange) -> NoReturn:
        if exchange.failure is not None:
            raise exchange.failure
        error = self._reported.error or ended_by
        if error is None:
            raise InternalError("pyspark's worker reported a traceback without an exception")
        raise UserError(
            whole_message(error), exception_class=qualified_name(error), traceback=trailer.traceback or ""
        ) from None

    def _kind(self, eval_type: int) -> Kind:
        kind = self._kinds.get(eval_type)
        if kind is not None:
            return kind
        runs = ", ".join(f"{known} ({kind.name})" for known, kind in self._kinds.items())
        raise FunctionRefusedError(
            f"this pool, with pyspark {self.pyspark_version}, does not run functions of eval type {eval_type};"
            f" it runs {runs}"
        )

    def _forget(self) -> None:
        """Empty PySpark's process-wide registries, except for the broadcast variables of the exchange."""
        TaskContext._setTaskContext(None)
        BarrierTaskContext._setTaskContext(None)
        _accumulatorRegistry.clear()
        for number in _broadcastRegistry.keys() - self._broadcasts.ids:
            del _broadcastRegistry[number]
        faulthandler.cancel_dump_traceback_later()
        self._reported.error = None


def _shorten_conversions(version: tuple[int, int]) -> None:
    if version >= _CONVERSION_MODULE_SINCE:
        from pyspark.sql import conversion

        struct_columns.install(conversion)
    try:
        from updraft_server.worker.pyspark import plain_columns
    except ImportError:
        # pandas is optional. A function that needs it fails with its own import error.
        return
    if version >= _CONVERSION_MODULE_SINCE:
        plain_columns.install(conversion)
    else:
        plain_columns.install_before_4_2(serializers)


def _logs(assignment: Assignment, exchange: Exchange) -> contextlib.AbstractContextManager[None]:
    if SESSION_VARIABLE in assignment.environment:
        return captured_logs(exchange.log)
    return contextlib.nullcontext()
