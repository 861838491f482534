# SPDX-License-Identifier: Apache-2.0
"""Memory that a writer's process shares with its receivers, for the bodies of batches.

The writer's process hands out ranges for batches that have credit, so the batches' reservations cover the memory. Arrow
reads a batch where the receiver has put the batch. A range is free again when nothing refers to its batch. A free range
keeps its pages for a later batch, because a copy onto fresh shared pages costs far more CPU time. Such idle pages never
exceed the unused quota, and the writer returns them to the system if no batch uses them for some time.
"""

import asyncio
import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from updraft.arrow_decoder import encapsulated_prefix
from updraft_writer.receivers.ranges import Ranges

# Sizes of ranges are multiples of this number, and therefore of a page, because only whole pages can be returned to the
# system. Rounding and the room for a header must add less than the size of the body, because a reservation covers twice
# the body.
_UNIT_BYTES = max(16 << 10, mmap.PAGESIZE)
# Room before a body for Arrow's header. The headers of a hundred columns fit. A longer header costs a copy of the body.
_HEADER_ROOM_BYTES = 8 << 10
_TRIM_SECONDS = 0.02
# Bytes of address space for each byte that can be in use. Gaps between ranges cost nothing, because unused pages take
# no memory.
_ADDRESSES_PER_BYTE = 4


class SharedMemory:
    """Pool of ranges. Use it from the event loop's thread. Blocks may be freed on any thread."""

    def __init__(self, most_bytes: int, room_bytes: Callable[[], int]) -> None:
        """Make the memory, which takes no pages yet.

        Args:
            most_bytes: Most bytes that can be in use at once.
            room_bytes: Function that returns how many bytes idle pages may take now.
        """
        self._size_bytes = _ADDRESSES_PER_BYTE * _rounded(most_bytes)
        self.descriptor = os.memfd_create("updraft-writer", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, self._size_bytes)
        self._mapping = mmap.mmap(self.descriptor, self._size_bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        self._room_bytes = room_bytes
        self._loop = asyncio.get_running_loop()
        # Free ranges: idle ranges have pages, empty ranges have no pages.
        self._idle = Ranges()
        self._empty = Ranges()
        self._empty.add(0, self._size_bytes)
        self.used_bytes = 0
        """Bytes of all ranges in use."""
        self.idle_bytes = 0
        """Bytes of unused ranges that have pages."""
        self.expected_bytes = 0
        """Size of the bodies that have credit and have not arrived. Idle pages may use their part of the quota."""
        self._is_trimming = False
        # Smallest value of `idle_bytes` since the last call of `drop_unused`.
        self._spare_bytes = 0

    def take(self, body_bytes: int) -> "Block | None":
        """Return a block for a body of this size, or None if no free range is large enough.

        The range is free again when the last reference to the block is gone.
        """
        size = _rounded(_HEADER_ROOM_BYTES + body_bytes)
        offset = self._idle.cut(size)
        if offset is not None:
            self.idle_bytes -= size
            self._spare_bytes = min(self._spare_bytes, self.idle_bytes)
        else:
            self._trim()
            offset = self._empty.cut(size)
        if offset is None:
            self._drop(self.idle_bytes)
            offset = self._empty.cut(size)
        if offset is None:
            return None
        self.used_bytes += size
        return Block(self, offset, size, body_bytes)

    def close(self) -> None:
        """Close the descriptor. The memory stays mapped until the last block is gone."""
        os.close(self.descriptor)

    def trim(self) -> None:
        """Soon return idle pages to the system until the remaining idle pages fit into the room.

        A new batch may receive the reservation of an old batch before the old batch's pages are idle. The delay lets
        the new batch reuse these pages.
        """
        if not self._is_trimming and self.idle_bytes:
            self._is_trimming = True
            self._loop.call_later(_TRIM_SECONDS, self._trim)

    def _trim(self) -> None:
        self._is_trimming = False
        self._drop(self.idle_bytes - max(0, self._room_bytes() + self.expected_bytes))

    def drop_unused(self) -> None:
        """Return idle pages that no batch has needed since the last call. Call this every few seconds."""
        self._drop(self._spare_bytes)
        self._spare_bytes = self.idle_bytes

    def give_back(self, offset: int, size: int) -> None:
        """Return a range to the pool, from any thread."""
        # If the process is ending, the loop may be closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take_back, offset, size)

    def _take_back(self, offset: int, size: int) -> None:
        self.used_bytes -= size
        self.idle_bytes += size
        self._idle.add(offset, size)
        self.trim()

    def _drop(self, wanted_bytes: int) -> None:
        """Return the pages of idle ranges, the largest range first, until at least this many bytes are returned."""
        while wanted_bytes > 0 and (found := self._idle.cut_largest(_rounded(wanted_bytes))) is not None:
            start, dropped = found
            self._mapping.madvise(mmap.MADV_REMOVE, start, dropped)
            self._empty.add(start, dropped)
            self.idle_bytes -= dropped
            wanted_bytes -= dropped
        self._spare_bytes = min(self._spare_bytes, self.idle_bytes)


class Block:
    """Range for one body, with room for Arrow's header before it."""

    def __init__(self, memory: SharedMemory, offset: int, size: int, body_bytes: int) -> None:
        self._memory = memory
        self._offset = offset
        self._size = size
        self._body_bytes = body_bytes
        self.body_offset = offset + _HEADER_ROOM_BYTES
        """Offset of the body in the shared memory."""

    def __del__(self) -> None:
        self._memory.give_back(self._offset, self._size)

    def body(self) -> memoryview:
        """Return the body. The returned view keeps the block in use."""
        return memoryview(self._view(self.body_offset, self._body_bytes)).cast("B")

    def encapsulated(self, header: memoryview) -> pa.Buffer | None:
        """Put Arrow's header before the body. Return both as an IPC message, or None if the header is too long."""
        prefix = encapsulated_prefix(header)
        if len(prefix) > _HEADER_ROOM_BYTES:
            return None
        start = self.body_offset - len(prefix)
        ctypes.memmove(self._memory.address + start, prefix, len(prefix))
        return self._view(start, len(prefix) + self._body_bytes)

    def _view(self, offset: int, size: int) -> pa.Buffer:
        return pa.foreign_buffer(self._memory.address + offset, size, base=self)


class PlacedMessage(bytes):
    """Message whose body lies in the shared memory. The bytes of this object are the message without the body."""

    body: memoryview
    _block: Block

    @classmethod
    def of(cls, rest: bytes, block: Block) -> "PlacedMessage":
        """Return the message whose body a receiver puts into a block."""
        message = cls(rest)
        message.body, message._block = block.body(), block
        return message

    @property
    def block(self) -> Block:
        """Block that contains the body."""
        return self._block


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // _UNIT_BYTES) * _UNIT_BYTES
