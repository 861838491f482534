# SPDX-License-Identifier: Apache-2.0
"""Messages from a writer to its client, one at a time: credit, parts of a returned file, the receipt or an error."""

import asyncio
from contextlib import suppress
from typing import Any

from updraft.errors import DeadlineError, SinkError, UpdraftError
from updraft.flight_data import join_flight_data
from updraft.service.exchange import Call, send_last
from updraft.service.silence import Silence
from updraft.v1.exchange_pb2 import KeepAlive
from updraft.v1.write_pb2 import Receipt, WriteReplyMetadata
from updraft_writer.futures import ignore_failure
from updraft_writer.pieces import Piece

# Interval of the keepalives that a writer sends if it has nothing else to send.
_KEEPALIVE_SECONDS = 30.0
_NOTHING = memoryview(b"")


class Replies:
    """Writer's half of one exchange."""

    def __init__(self, call: Call, *, max_message_bytes: int) -> None:
        self.client_signs = 0
        """Number of messages and parts received so far. Each message or part proves that the client is alive."""
        self._call = call
        self._max_message_bytes = max_message_bytes
        self._messages = 0
        self._turn = asyncio.Lock()
        self._credit = 0
        self._stored = 0
        self._sending: asyncio.Future[None] | None = None

    async def keep_alive(self) -> None:
        """Send keepalives while there is nothing else to send, until cancelled."""
        # Ignore errors here: other tasks notice if the client is gone or does not read.
        with suppress(Exception):
            while True:
                before = self._messages
                await asyncio.sleep(_KEEPALIVE_SECONDS)
                if self._messages == before:
                    await self._send(self._metadata(keep_alive=KeepAlive()))

    async def give_credit(self) -> None:
        """Give the client credit for one more batch."""
        self._credit += 1
        await self._send(self._metadata(max_message_bytes=self._max_message_bytes))

    async def stored(self, batches: int) -> None:
        """Report to the client that its first `batches` batches are encoded and stored."""
        self._stored = batches
        await self._send(self._metadata())

    async def part(self, offset: int, piece: Piece) -> None:
        """Send bytes of a returned file."""
        await self._send(self._metadata(offset=offset), memoryview(piece))

    async def receipt(self, receipt: Receipt) -> None:
        """Send the receipt."""
        await self._send(self._metadata(receipt=receipt))

    async def error(self, error: UpdraftError) -> None:
        """Send the error in-band. A client that does not read receives only the status."""
        await send_last(self._send(self._metadata(error=error.to_message())))

    def _metadata(self, **fields: Any) -> WriteReplyMetadata:
        return WriteReplyMetadata(credit=self._credit, stored=self._stored, **fields)

    async def _send(self, metadata: WriteReplyMetadata, body: memoryview = _NOTHING) -> None:
        async with self._turn:
            # Wait for the last message even if its sender was cancelled, because gRPC cannot stop a send that has
            # begun.
            if self._sending is not None and not self._sending.done():
                await asyncio.wait({self._sending})
            self._messages += 1
            message = join_flight_data(_NOTHING, metadata.SerializeToString(), body)
            self._sending = asyncio.ensure_future(self._call.write(message))
            self._sending.add_done_callback(ignore_failure)
            await asyncio.shield(self._sending)


class ReturnedSink:
    """Sink of `return` delivery, which sends encoded bytes to the client. Bytes stay reserved until they are sent."""

    def __init__(self, replies: Replies, *, silence_seconds: float) -> None:
        self._replies = replies
        self._silence_seconds = silence_seconds
        self._offset = 0

    async def open(self) -> None:
        """Do nothing: the client opens its own file."""

    async def write(self, piece: Piece) -> None:
        """Send a piece; raises SinkError if the client is gone, DeadlineError if the client neither reads nor sends."""
        sending = asyncio.ensure_future(self._replies.part(self._offset, piece))
        silence = Silence(self._silence_seconds)
        try:
            while not (await asyncio.wait({sending}, timeout=silence.look_seconds))[0]:
                if silence.is_too_long(self._replies.client_signs, owed=True):
                    raise DeadlineError(
                        f"the client neither read its file nor sent a message for {self._silence_seconds:g} seconds "
                        "(--client-silence-seconds of the writer)"
                    )
            sending.result()
            self._replies.client_signs += 1
        except UpdraftError:
            raise
        except Exception as error:
            raise SinkError(f"the client is gone: {error}") from error
        finally:
            sending.cancel()
        self._offset += len(piece)

    async def publish(self) -> None:
        """Do nothing: the receipt tells the client that its file is complete."""

    async def discard(self) -> None:
        """Do nothing: the error tells the client that its file is not complete."""
