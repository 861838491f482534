# SPDX-License-Identifier: Apache-2.0
"""Sinks that follow the test's instructions: keep the bytes, wait at a gate, fail at a step."""

import asyncio

from updraft.errors import SinkError
from updraft_writer.pieces import Piece


class MemorySink:
    """Sink that keeps its bytes; gates hold writes or the publication back, and `fail_at` names the step that fails.

    `writing` is set once a write has begun, `wrote` once one has ended, `publishing` once the publication has begun.
    """

    def __init__(
        self, *, fail_at: str = "", gate: asyncio.Event | None = None, publish_gate: asyncio.Event | None = None
    ) -> None:
        self.steps: list[str] = []
        self.stored = b""
        self.published: bytes | None = None
        self.discarded = False
        self.writing = asyncio.Event()
        self.wrote = asyncio.Event()
        self.publishing = asyncio.Event()
        self.fail_at = fail_at
        self.error = SinkError(f"the storage fails at {fail_at}")
        self._gate = gate
        self._publish_gate = publish_gate

    async def open(self) -> None:
        self._step("open")

    async def write(self, piece: Piece) -> None:
        self.writing.set()
        if self._gate is not None:
            await self._gate.wait()
        self._step("write")
        self.stored += piece
        self.wrote.set()

    async def publish(self) -> None:
        self.publishing.set()
        if self._publish_gate is not None:
            await self._publish_gate.wait()
        self._step("publish")
        self.published = self.stored

    async def discard(self) -> None:
        self.discarded = True

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.fail_at:
            raise self.error
