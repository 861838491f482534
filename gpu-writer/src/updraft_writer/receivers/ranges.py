# SPDX-License-Identifier: Apache-2.0
"""Set of free ranges. Its operations stay fast for all sizes that clients can choose."""

import bisect


class Ranges:
    """Disjoint ranges of bytes. Adjacent ranges are merged."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._starts_by_end: dict[int, int] = {}
        # Pairs of size and offset, in order.
        self._by_size: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._sizes)

    def add(self, offset: int, size: int) -> None:
        """Add a range and merge it with adjacent ranges."""
        if (after := self._sizes.get(offset + size)) is not None:
            self._remove(offset + size)
            size += after
        if (before := self._starts_by_end.get(offset)) is not None:
            size += self._remove(before)
            offset = before
        self._sizes[offset] = size
        self._starts_by_end[offset + size] = offset
        bisect.insort(self._by_size, (size, offset))

    def cut(self, size: int) -> int | None:
        """Cut `size` bytes off the smallest range that is large enough. Return their offset; None if there is none."""
        index = bisect.bisect_left(self._by_size, (size, 0))
        if index == len(self._by_size):
            return None
        found, offset = self._by_size[index]
        self._remove(offset)
        if found > size:
            self.add(offset + size, found - size)
        return offset

    def cut_largest(self, most: int) -> tuple[int, int] | None:
        """Cut up to `most` bytes off the end of the largest range. Return offset and size; None without ranges."""
        if not self._by_size:
            return None
        found, offset = self._by_size[-1]
        self._remove(offset)
        size = min(found, most)
        if size < found:
            self.add(offset, found - size)
        return offset + found - size, size

    def _remove(self, offset: int) -> int:
        size = self._sizes.pop(offset)
        del self._starts_by_end[offset + size]
        del self._by_size[bisect.bisect_left(self._by_size, (size, offset))]
        return size
