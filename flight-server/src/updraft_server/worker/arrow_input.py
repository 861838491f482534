# SPDX-License-Identifier: Apache-2.0
"""What a client sent, as Arrow: `updraft.arrow_decoder` over frames."""

import pyarrow as pa

from updraft.arrow_decoder import ArrowDecoder
from updraft.errors import ProtocolError
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.worker.channel import ReceivedFrame


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
            raise ProtocolError("a batch arrived before the schema")
        return self._inputs[0].schema

    def decode_schema(self, frame: ReceivedFrame) -> None:
        """Take over the schema that the first message announces; raises ProtocolError."""
        if not frame.header.header_bytes:
            raise ProtocolError("the first message has no Arrow schema")
        self._add_input(frame.message, "the first message")

    def decode_second_schema(self, message: bytes) -> None:
        """Take over the schema of a second input; raises ProtocolError."""
        self._add_input(pa.py_buffer(message), "second_input_schema")

    def decode_batch(self, frame: ReceivedFrame, *, sequence: int, of_input: int = 0) -> pa.RecordBatch:
        """A batch that fits the schema and is valid to its last offset; raises ProtocolError or LimitError."""
        return self._inputs[of_input].decode_batch(frame.message, sequence=sequence)

    def _add_input(self, encapsulated: pa.Buffer, what: str) -> None:
        max_batch_rows = self._settings.max_batch_rows
        self._inputs.append(ArrowDecoder.announced_by(encapsulated, what, max_batch_rows=max_batch_rows))
