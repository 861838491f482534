# SPDX-License-Identifier: Apache-2.0
"""What a client sent, as Arrow: `updraft.arrow_decoder` over frames, with a worker's failures."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from updraft.arrow_decoder import ArrowDecoder
from updraft.errors import LimitError, ProtocolError
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.worker.channel import ReceivedFrame
from updraft_server.worker.failures import LimitFailure, ProtocolFailure


class ArrowInput:
    """Decodes the schemas of an exchange once, then its batches."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._inputs: list[ArrowDecoder] = []

    @property
    def inputs(self) -> int:
        """How many inputs the function has."""
        return len(self._inputs)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the arguments."""
        if not self._inputs:
            raise ProtocolFailure("a batch arrived before the schema")
        return self._inputs[0].schema

    def decode_schema(self, frame: ReceivedFrame) -> None:
        """Take over the schema that the first message announces; raises ProtocolFailure."""
        if not frame.header.header_bytes:
            raise ProtocolFailure("the first message has no Arrow schema")
        self._add_input(frame.message, "the first message")

    def decode_second_schema(self, message: bytes) -> None:
        """Take over the schema of a second input; raises ProtocolFailure."""
        self._add_input(pa.py_buffer(message), "second_input_schema")

    def decode_batch(self, frame: ReceivedFrame, *, sequence: int, of_input: int = 0) -> pa.RecordBatch:
        """A batch that fits the schema and is valid to its last offset; raises ProtocolFailure or LimitFailure."""
        with _as_failures():
            return self._inputs[of_input].decode_batch(frame.message, sequence=sequence)

    def _add_input(self, encapsulated: pa.Buffer, what: str) -> None:
        max_batch_rows = self._settings.max_batch_rows
        with _as_failures():
            self._inputs.append(ArrowDecoder.announced_by(encapsulated, what, max_batch_rows=max_batch_rows))


@contextmanager
def _as_failures() -> Iterator[None]:
    try:
        yield
    except ProtocolError as error:
        raise ProtocolFailure(error.message) from None
    except LimitError as error:
        raise LimitFailure(error.message) from None
