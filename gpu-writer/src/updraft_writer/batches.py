# SPDX-License-Identifier: Apache-2.0
"""Arriving batches of one exchange: assembly of parts, checks of sizes, and decoding."""

from functools import partial

import pyarrow as pa

from updraft.arrow_cost import Claims
from updraft.arrow_decoder import encapsulated_message
from updraft.batch_parts import BatchParts
from updraft.errors import LimitError, ProtocolError
from updraft.flight_data import FlightFields, split_flight_data
from updraft.service.exchange import check_size
from updraft.v1.exchange_pb2 import BatchPart
from updraft_writer.futures import on_thread
from updraft_writer.receivers.shared_memory import PlacedMessage
from updraft_writer.request import SERVICE, WriteRequest
from updraft_writer.row_groups import check_unbacked, reserved_bytes
from updraft_writer.shared_values import refuse_shared_views

# Largest batch that the event loop decodes. For such a small batch, the switch to a thread would take longer than the
# decoding. A larger batch goes to a thread, because all other exchanges would wait while the event loop copied and
# checked the batch. A header has about 50 bytes for each column.
_MOST_HEADER_BYTES_ON_LOOP, _MOST_BODY_BYTES_ON_LOOP = 32 << 10, 1 << 20
# Limit on the size of a batch's header, because credit covers no header bytes. The header of the widest schema takes
# less than 3 MiB.
_MAX_HEADER_BYTES = 4 << 20


class Batches:
    """Batches of one exchange, decoded one at a time."""

    def __init__(self, request: WriteRequest, *, max_message_bytes: int, allowance_bytes: int) -> None:
        """Expect batches of a request.

        Args:
            request: The checked request.
            max_message_bytes: Largest size of one message.
            allowance_bytes: Additional bytes that each credit covers for values without bytes.
        """
        self._request = request
        self._max_message_bytes = max_message_bytes
        self._allowance_bytes = allowance_bytes
        # The batch that is arriving in parts, if there is one.
        self._parts: BatchParts | None = None
        # The last message, if a receiver put the message's body into shared memory; otherwise None.
        self._placed: PlacedMessage | None = None

    @property
    def is_in_parts(self) -> bool:
        """Whether the first parts of a batch have arrived, but not yet the last part."""
        return self._parts is not None

    @property
    def come_bytes(self) -> int:
        """Bytes received so far of the batch that is arriving in parts."""
        return 0 if self._parts is None else self._parts.come_bytes

    def split(self, message: bytes) -> FlightFields:
        """Return the fields of a message; raises LimitError and ProtocolError."""
        if not isinstance(message, PlacedMessage):
            check_size(len(message), self._max_message_bytes, SERVICE)
            return split_flight_data(message)
        check_size(len(message) + len(message.body), self._max_message_bytes, SERVICE)
        self._placed = message
        return split_flight_data(message)._replace(data_body=message.body)

    def raw_bytes(self, fields: FlightFields) -> int:
        """Return the size of a batch's body, given the batch's last or only message."""
        return len(fields.data_body) if self._parts is None else self._parts.body_bytes

    async def take_part(self, sequence: int, part: BatchPart, fields: FlightFields, *, credit_bytes: int) -> None:
        """Store a part of a batch, but not the last part; raises ProtocolError and LimitError.

        `credit_bytes` is the number of bytes reserved for the batch, or 0 if the batch has no credit.
        """
        self._placed = None
        if fields.data_header:
            raise ProtocolError(f"a part of batch {sequence} that is not the last one has Arrow metadata")
        if self._parts is None:
            self._check_covered(sequence, part.body_bytes, credit_bytes)
            # The credit already limits the size of the batch, because no credit covers more than the writer accepts.
            self._parts = BatchParts(sequence, part, limit_bytes=part.body_bytes, setting="")
        take = partial(self._parts.add, part, fields.data_body)
        # Copy a large part on a thread, because the first copy into new memory takes a few milliseconds for each 16
        # MiB.
        await on_thread(take) if len(fields.data_body) > _MOST_BODY_BYTES_ON_LOOP else take()

    async def decoded(self, sequence: int, fields: FlightFields, *, credit_bytes: int) -> tuple[pa.RecordBatch, Claims]:
        """Decode a batch, given the batch's last or only message; raises ProtocolError and LimitError."""
        header_bytes, body_bytes = len(fields.data_header), self.raw_bytes(fields)
        if header_bytes > _MAX_HEADER_BYTES:
            raise LimitError(
                f"batch {sequence} has {header_bytes} bytes of Arrow metadata, the limit is {_MAX_HEADER_BYTES}"
            )
        self._check_covered(sequence, body_bytes, credit_bytes)
        if header_bytes <= _MOST_HEADER_BYTES_ON_LOOP and body_bytes <= _MOST_BODY_BYTES_ON_LOOP:
            return self._decode(sequence, fields)
        # If the caller is cancelled, `on_thread` still waits for the thread, because the thread uses the reserved
        # memory.
        return await on_thread(partial(self._decode, sequence, fields))

    def drop(self) -> None:
        """Free the batch that has not been decoded."""
        self._parts = self._placed = None

    def _check_covered(self, sequence: int, body_bytes: int, credit_bytes: int) -> None:
        if not credit_bytes:
            raise ProtocolError(f"batch {sequence} came without credit: ask first and wait for the credit")
        if reserved_bytes(body_bytes) > credit_bytes - self._allowance_bytes:
            raise ProtocolError(f"batch {sequence} has {body_bytes} bytes, which is more than its credit covers")

    def _decode(self, sequence: int, fields: FlightFields) -> tuple[pa.RecordBatch, Claims]:
        decoder, body_bytes = self._request.decoder, self.raw_bytes(fields)
        message = self._encapsulated(fields)
        claims = decoder.claims(message, sequence=sequence)
        check_unbacked(sequence, claims.unbacked_bytes, self._allowance_bytes)
        check = partial(refuse_shared_views, body_bytes=body_bytes) if self._request.has_views else None
        return decoder.decode_batch(message, sequence=sequence, check=check), claims

    def _encapsulated(self, fields: FlightFields) -> pa.Buffer:
        parts, self._parts = self._parts, None
        placed, self._placed = self._placed, None
        if parts is not None:
            return parts.completed(fields.data_header, fields.data_body)
        in_place = placed.block.encapsulated(fields.data_header) if placed is not None else None
        return encapsulated_message(fields.data_header, fields.data_body) if in_place is None else in_place
