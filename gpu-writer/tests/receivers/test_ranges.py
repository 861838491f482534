# SPDX-License-Identifier: Apache-2.0
"""Free ranges of a memory, compared with a plain set of bytes."""

from __future__ import annotations

import random

from updraft_writer.receivers.ranges import Ranges

_SIZE = 64


def test_ranges_are_those_of_a_set_of_bytes() -> None:
    chosen = random.Random(7)
    ranges = Ranges()
    ranges.add(0, _SIZE)
    free = set(range(_SIZE))
    taken: list[tuple[int, int]] = []
    for _ in range(2000):
        size = chosen.randint(1, 9)
        if taken and chosen.random() < 0.5:
            offset, size = taken.pop(chosen.randrange(len(taken)))
            ranges.add(offset, size)
            free |= set(range(offset, offset + size))
        elif chosen.random() < 0.2:
            if (found := ranges.cut_largest(size)) is not None:
                taken.append(found)
                free -= set(range(found[0], found[0] + found[1]))
        elif (start := ranges.cut(size)) is not None:
            assert set(range(start, start + size)) <= free
            taken.append((start, size))
            free -= set(range(start, start + size))
        assert len(ranges) == sum(1 for byte in free if byte - 1 not in free)


def test_many_gaps_do_not_make_a_cut_slower_than_its_list() -> None:
    ranges = Ranges()
    for gap in range(50_000):
        ranges.add(3 * gap, 1)
    assert ranges.cut(2) is None
    ranges.add(1, 2)
    assert ranges.cut(4) == 0
    assert len(ranges) == 49_998
