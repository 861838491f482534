# SPDX-License-Identifier: Apache-2.0
"""Requests to a client for artifacts and for a deferred payload, sent before the client's exchange has a worker."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from updraft.errors import LimitError, ProtocolError
from updraft.flight_data import split_flight_data
from updraft.service import exchange as calls
from updraft.v1.exchange_pb2 import ArtifactsWanted, DeferredPayload, PayloadWanted, ReplyMetadata, RequestMetadata

# A task reads an upload from its own memory or disk, so if no byte arrives for this long, the client has most likely
# stopped. During this time, the exchange holds its place in the queue.
ARTIFACT_TIMEOUT_SECONDS = 60.0
# Slowest allowed upload, slower than any network that tasks would use. Without this limit, a client that trickles bytes
# could hold its place for ever.
_LEAST_BYTES_PER_SECOND = 64 * 1024


class ArtifactPart(NamedTuple):
    """Part of a requested artifact."""

    digest: bytes
    offset: int
    data: memoryview


class ArtifactDialogue:
    """Dialogue with one client: requests for artifacts and for the payload, and the client's answers."""

    def __init__(
        self,
        read: calls.ReadMessage,
        write: Callable[[bytes], Awaitable[None]],
        limits: calls.MessageLimits,
        *,
        timeout_seconds: float,
    ) -> None:
        self._read = read
        self._write = write
        self._limits = limits
        self._timeout_seconds = timeout_seconds
        self._waited_seconds = 0.0
        self._arrived_bytes = 0

    async def ask(self, digests: Iterable[bytes]) -> None:
        """Request the artifacts with these digests. An empty request tells the client that no more requests follow."""
        await self._say(ReplyMetadata(artifacts_wanted=ArtifactsWanted(sha256=digests)))

    async def part(self) -> ArtifactPart:
        """Return the next part of an artifact; raise ProtocolError for any other message or if the client is too slow.

        One time limit applies to all artifacts of the exchange together. It covers only time spent in this method.
        """
        allowed_seconds = self._timeout_seconds + self._arrived_bytes / _LEAST_BYTES_PER_SECOND
        began = time.monotonic()
        try:
            async with asyncio.timeout(allowed_seconds - self._waited_seconds) as patience:
                metadata, data = await self._receive("artifact")
        except TimeoutError:
            if not patience.expired():
                raise
            raise ProtocolError(
                f"the client sent only {self._arrived_bytes} bytes of artifacts within {allowed_seconds:g} seconds"
            ) from None
        self._waited_seconds += time.monotonic() - began
        self._arrived_bytes += len(data)
        return ArtifactPart(metadata.artifact.sha256, metadata.artifact.offset, data)

    async def payload(self, deferred: DeferredPayload) -> bytes:
        """Request the deferred payload and return all of it.

        Raises LimitError if the announced size is 0 or above the message limit, and ProtocolError if the client sends
        any other message or is too slow.
        """
        size_bytes = deferred.size_bytes
        limit_bytes = self._limits.max_message_bytes
        if not 0 < size_bytes <= limit_bytes:
            raise LimitError(
                f"the function has {size_bytes} bytes, the limit of this pool is {limit_bytes}: "
                "broadcast what the function refers to, or raise --max-message-bytes"
            )
        await self._say(ReplyMetadata(payload_wanted=PayloadWanted()))
        limit_seconds = self._timeout_seconds + size_bytes / _LEAST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(limit_seconds):
                return await self._whole_payload(size_bytes)
        except TimeoutError:
            raise ProtocolError(
                f"the client did not send its function of {size_bytes} bytes within {limit_seconds:g} seconds"
            ) from None

    async def _whole_payload(self, size_bytes: int) -> bytes:
        payload = bytearray()
        while len(payload) < size_bytes:
            metadata, data = await self._receive("payload")
            if metadata.payload.offset != len(payload):
                raise ProtocolError(f"the function continues at byte {metadata.payload.offset}, not {len(payload)}")
            if not 0 < len(data) <= size_bytes - len(payload):
                raise ProtocolError(
                    f"a part of the function has {len(data)} bytes, after {len(payload)} of the {size_bytes} bytes "
                    f"that the command announced: expected 1 to {size_bytes - len(payload)} bytes"
                )
            payload += data
        return bytes(payload)

    async def _say(self, metadata: ReplyMetadata) -> None:
        """Send a message. If cancelled, first let the write finish, within a time limit.

        While gRPC writes a message, it accepts no other message, such as an error.
        """
        sending = asyncio.ensure_future(self._write(calls.event_message(metadata)))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait({sending}, timeout=calls.LAST_MESSAGE_TIMEOUT_SECONDS)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            raise

    async def _receive(self, expected: str) -> tuple[RequestMetadata, memoryview]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                metadata, data = await self._message()
                while metadata.HasField("keep_alive"):
                    metadata, data = await self._message()
        except TimeoutError:
            raise ProtocolError(
                f"the client sent none of the requested data within {self._timeout_seconds:g} seconds"
            ) from None
        if metadata.WhichOneof("event") != expected:
            raise ProtocolError(f"another message arrived before the {expected} that the pool requested")
        return metadata, data

    async def _message(self) -> tuple[RequestMetadata, memoryview]:
        message = await self._read()
        if message is None:
            raise ProtocolError("the client ended its stream before it had sent the requested data")
        calls.check_size(len(message), self._limits.max_message_bytes, self._limits.service)
        fields = split_flight_data(message)
        return calls.request_metadata(fields), fields.data_body
