# SPDX-License-Identifier: Apache-2.0
"""Batches of a client, passed on to the worker. The front does not read their bytes."""

from updraft.arrow_metadata import is_dictionary
from updraft.errors import ProtocolError
from updraft.flight_data import FlightFields, split_flight_data
from updraft.service.exchange import Call, check_size, fail_without_finish, request_metadata
from updraft_server.front.relay.segment_offer import SegmentOffer
from updraft_server.front.relay.transfer import Transfer
from updraft_server.front.request.request import SERVICE, Request
from updraft_server.ipc.frame_stream import FrameSender
from updraft_server.ipc.frames import FrameKind


class ClientBatches:
    """Messages that an exchange's client sends after the first. They are checked, counted and passed to the worker."""

    def __init__(
        self,
        call: Call,
        sender: FrameSender,
        request: Request,
        max_message_bytes: int,
        transfer: Transfer,
        offer: SegmentOffer,
    ) -> None:
        self._call = call
        self._sender = sender
        self._request = request
        self._max_message_bytes = max_message_bytes
        self._transfer = transfer
        self._offer = offer
        self.rows = 0
        """Number of rows that the client states in its finish message."""

    async def relay(self) -> None:
        """Pass on everything until the client has finished; raise ProtocolError or LimitError."""
        if self._request.plain:
            await self._relay_plain()
        else:
            await self._relay_numbered()

    async def _relay_plain(self) -> None:
        while (message := await self._call.read()) is not None:
            await self._relay_message(message)

    async def _relay_numbered(self) -> None:
        while (message := await self._call.read()) is not None:
            if await self._relay_message(message):
                if await self._call.read() is not None:
                    raise ProtocolError("a message arrived after finish")
                return
        await fail_without_finish()

    async def _relay_message(self, message: bytes) -> bool:
        """Pass one message on; return True if it is the client's finish."""
        check_size(len(message), self._max_message_bytes, SERVICE)
        fields = split_flight_data(message)
        # A client of arrow-udf sends its descriptor with each message.
        if fields.descriptor and not (self._request.plain and fields.descriptor == self._request.descriptor):
            raise ProtocolError("a second flight descriptor arrived: only the first message has one")
        if not fields.data_header and not self._request.plain:
            return await self._relay_event(message, fields)
        if fields.data_header or fields.data_body:
            # Like a part, count a dictionary before passing it on: the worker reads it together with the next batch.
            self._transfer.dictionaries += self._request.plain and is_dictionary(fields.data_header)
            await self._pass_on(message, fields)
        else:
            # Plain Flight has no metadata, so a message without any data serves as a keepalive.
            self._transfer.keep_alives += 1
        return False

    async def _relay_event(self, message: bytes, fields: FlightFields) -> bool:
        metadata = request_metadata(fields)
        if metadata.HasField("keep_alive"):
            self._transfer.keep_alives += 1
            return False
        is_part = metadata.HasField("part")
        # Count the part before passing it on, so that it never counts as a batch for which the worker owes a reply.
        self._transfer.parts += is_part
        await self._pass_on(message, fields)
        if not metadata.HasField("finish"):
            return False
        self._transfer.finishes += 1
        self.rows = metadata.finish.rows
        return True

    async def _pass_on(self, message: bytes, fields: FlightFields) -> None:
        body = fields.data_body
        segment = self._offer.segment
        if segment is not None and not body and fields.data_header:
            metadata = request_metadata(fields)
            if metadata.HasField("body"):
                body = segment.request(metadata.body)
                check_size(len(message) + len(body), self._max_message_bytes, SERVICE)
                self._transfer.received_bytes += len(body)
                self._transfer.segment_received_bytes += len(body)
        self._transfer.received_messages += 1
        self._transfer.received_bytes += len(message)
        await self._sender.send(FrameKind.BATCH, fields.app_metadata, fields.data_header, body)
