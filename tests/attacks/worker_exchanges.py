# SPDX-License-Identifier: Apache-2.0
"""Worker exchange of an owner: PySpark's own worker runs a task of an RDD with one element."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.serializers import CPickleSerializer, SpecialLengths
from session_commands import session_command

from tests.attacks.exchanges import BrokenExchangeError, Exchange
from tests.support.flight import finishing, ipc_parts, numbered
from updraft.v1.exchange_pb2 import ExchangeCommand, TaskIdentity, WorkerModule
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.pyspark import init_message
from updraft_server.worker.pyspark.connections import RUNNER, SCHEMA
from updraft_server.worker.pyspark.wire import INT, text, with_length

_START_OF_INIT_MESSAGE = -8
_NO_SETTINGS = init_message.settings({})
_NO_BROADCASTS = init_message.BroadcastChanges({}, frozenset())


class WorkerExchange(Exchange):
    """Worker exchange with one task. As in an ordinary exchange, the function receives a column with one row."""

    schema = SCHEMA

    def _command(self, function: Callable[[Any], Any], artifacts: Any) -> ExchangeCommand:
        opening, *self._stream = _task(function)
        module = WorkerModule(name="pyspark.worker", opening=opening)
        return session_command(0, [], worker_module=module, artifacts=artifacts)

    def ask(self) -> str:
        """Run the task and return the function's answer; raises BrokenExchangeError."""
        for piece in self._stream:
            self._send_piece(piece)
        output = b""
        while data := self._piece():
            output += data
        size = INT.unpack_from(output)[0]
        if size <= 0:
            raise BrokenExchangeError(f"the worker wrote {output!r}")
        return str(CPickleSerializer().loads(output[INT.size : INT.size + size]))

    def finish(self) -> None:
        """End the exchange; raises BrokenExchangeError."""
        self._requests.put(finishing(self._asked, self._asked))
        self._end()

    def _send_piece(self, data: bytes) -> None:
        self._asked += 1
        row = pa.RecordBatch.from_pylist([{"connection": RUNNER, "data": data, "read": 0}], schema=SCHEMA)
        (_, message) = ipc_parts(SCHEMA, [row])
        self._requests.put(numbered(*message, self._asked))

    def _piece(self) -> bytes:
        """Return the next bytes of the worker's output; empty at the end of the output."""
        data = None
        while data is None:
            data = self._batch(self._next("sequence")).column("data")[0].as_py()
        return bytes(data)


def _task(function: Callable[[Any], Any]) -> Iterable[bytes]:
    """Return the bytes that Spark's runner would write: the start of the task, its element, and the end."""

    def run(_split: int, elements: Iterable[Any]) -> Iterable[str]:
        import pyarrow as pa

        return (function(pa.array([element]))[0].as_py() for element in elements)

    serializer = CPickleSerializer()
    command = cloudpickle.dumps((run, None, serializer, serializer))
    files = init_message.artifacts(Assignment(), init_message.Surroundings("/nowhere", _NO_BROADCASTS))
    task = TaskIdentity()
    message = init_message.task_header(task) + text(init_message._task_context(task)) + files
    message += INT.pack(0) + _NO_SETTINGS + _NO_SETTINGS + with_length(command)
    elements = io.BytesIO()
    serializer.dump_stream(iter([1]), elements)
    end = struct.pack("!2i", SpecialLengths.END_OF_DATA_SECTION, SpecialLengths.END_OF_STREAM)
    return [INT.pack(_START_OF_INIT_MESSAGE) + with_length(message), elements.getvalue() + end]
