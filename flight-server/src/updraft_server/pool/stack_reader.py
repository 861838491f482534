# SPDX-License-Identifier: Apache-2.0
"""Reader of a worker's Python stacks, from the pipe to which the worker writes them when the zygote asks."""

import asyncio
import os
from collections.abc import Callable

from updraft_server.ipc.zygote_packets import MAX_STACK_BYTES

_FIRST_SECONDS = 2.0
# The text has no end mark, but after the first part the rest comes at once.
_NEXT_SECONDS = 0.1


class StackReader:
    """Front's end of the pipe. A function that writes to it falsifies its own stacks only."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = asyncio.Lock()
        os.set_blocking(descriptor, False)

    async def read(self, ask: Callable[[], None]) -> str:
        """Return the stacks of all threads, the innermost call first; empty if the worker does not answer.

        Args:
            ask: Makes the worker write them.
        """
        async with self._turn:
            self._read_what_is_there()
            ask()
            text = b""
            while len(text) < MAX_STACK_BYTES and await self._has_more(_NEXT_SECONDS if text else _FIRST_SECONDS):
                more = self._read_what_is_there()
                if not more:
                    # The worker has ended.
                    break
                text += more
            return text[:MAX_STACK_BYTES].decode("utf-8", "replace")

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    async def _has_more(self, within_seconds: float) -> bool:
        if self._descriptor < 0:
            return False
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._descriptor, readable.set)
        try:
            async with asyncio.timeout(within_seconds):
                await readable.wait()
        except TimeoutError:
            return False
        finally:
            if self._descriptor >= 0:
                loop.remove_reader(self._descriptor)
        return True

    def _read_what_is_there(self) -> bytes:
        """Read at most MAX_STACK_BYTES, however fast a function writes on."""
        if self._descriptor < 0:
            return b""
        try:
            return os.read(self._descriptor, MAX_STACK_BYTES)
        except OSError:
            return b""
