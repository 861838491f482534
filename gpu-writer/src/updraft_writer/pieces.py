# SPDX-License-Identifier: Apache-2.0
"""Encoded bytes on their way to the storage, copied once, into memory that has been used before.

An encoder's library reuses the memory that it passes on, so this module copies the bytes. A copy onto fresh pages costs
seven times as much CPU time as a copy onto used pages, and a copy under the interpreter's lock stops every other file.
So this module copies without the lock, into blocks that have been used before. A block is free again when nothing
refers to its pieces.
"""

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa

Piece = bytes | memoryview
# Size of a piece: large enough that the storage receives few writes, small enough to free memory piece by piece.
PIECE_BYTES = 1024 * 1024
# Size of a block: several pieces, so that a copy takes long compared with releasing and retaking the interpreter's
# lock.
BLOCK_BYTES = 4 * PIECE_BYTES
# Maximum number of bytes in free blocks: as many as a few files have in flight to a fast storage.
_IDLE_BYTES = 256 * 1024 * 1024
# Copies smaller than this keep the interpreter's lock.
_UNLOCKED_BYTES = 64 * 1024


class Blocks:
    """Pool of blocks. Any thread may use it.

    Free blocks take memory too, so their bytes never exceed the result of `room_bytes`.
    """

    def __init__(self, room_bytes: Callable[[], int] = lambda: _IDLE_BYTES) -> None:
        self._room_bytes = room_bytes
        self.elsewhere: Callable[[], int] = lambda: 0
        """Function that returns how many bytes of the room other memory occupies, outside this pool."""
        self._free: list[mmap.mmap] = []

    @property
    def idle_bytes(self) -> int:
        """Bytes of the free blocks."""
        return len(self._free) * BLOCK_BYTES

    def take(self) -> "Block":
        """Return a block. The block returns to the pool when nothing refers to it."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = mmap.mmap(-1, BLOCK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return Block(memory, self._give_back)

    def trim(self) -> None:
        """Return free blocks to the system until the remaining free blocks fit into the room."""
        while self._free and self.idle_bytes > min(_IDLE_BYTES, self._room_bytes() - self.elsewhere()):
            # Another thread may have taken the last block.
            with suppress(IndexError):
                self._free.pop()

    def _give_back(self, memory: mmap.mmap) -> None:
        self._free.append(memory)
        self.trim()


class Block:
    """Memory of a few pieces, filled from its start."""

    def __init__(self, memory: mmap.mmap, give_back: Callable[[mmap.mmap], None]) -> None:
        self._memory = memory
        self._give_back = give_back
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._used_bytes = 0

    def __del__(self) -> None:
        self._give_back(self._memory)

    @property
    def is_full(self) -> bool:
        """Whether the block has no room left."""
        return self._used_bytes == BLOCK_BYTES

    def fill(self, data: memoryview) -> int:
        """Copy as much of `data` as fits into the block; return the number of bytes copied."""
        start, size = self._used_bytes, min(len(data), BLOCK_BYTES - self._used_bytes)
        if size < _UNLOCKED_BYTES:
            self._memory[start : start + size] = data[:size]
        else:
            # ctypes releases the interpreter's lock during the call.
            ctypes.memmove(self._address + start, pa.py_buffer(data).address, size)
        self._used_bytes += size
        return size

    def pieces(self) -> Iterator[Piece]:
        """Yield the bytes of the block so far. The block must not be filled any further.

        If the last piece has less than PIECE_BYTES, it is a copy, so that a file with few bytes does not hold a block.
        """
        whole_bytes = self._used_bytes - self._used_bytes % PIECE_BYTES
        if whole_bytes:
            view = memoryview(pa.foreign_buffer(self._address, whole_bytes, base=self))
            for start in range(0, whole_bytes, PIECE_BYTES):
                yield view[start : start + PIECE_BYTES]
        if whole_bytes < self._used_bytes:
            yield self._memory[whole_bytes : self._used_bytes]
