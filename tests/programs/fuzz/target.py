# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: a reader of bytes, and how bytes are made that come close to what it expects."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Pieces = list[bytes]
"""One input: the parts that its reader takes."""

_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


@dataclass(frozen=True, slots=True)
class Target:
    """A reader that hostile bytes reach."""

    name: str
    make: Callable[[random.Random], Pieces]
    """An input: a valid one, changed, or one that was made to a pattern."""
    read: Callable[[Pieces], None]
    """Reads an input as the service does; what it raises is a finding."""


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        place = chance.randrange(len(changed))
        match chance.randrange(6):
            case 0:
                changed[place] ^= 1 << chance.randrange(8)
            case 1:
                changed[place] = chance.choice(_INTERESTING)
            case 2:
                changed[place : place + 4] = chance.choice((-1, 2**31 - 1, -(2**31), 1)).to_bytes(
                    4, "little", signed=True
                )
            case 3:
                del changed[place : place + chance.randrange(1, 9)]
            case 4:
                changed[place:place] = changed[place : place + chance.randrange(1, 33)]
            case _:
                del changed[place:]
    return bytes(changed)


def number(chance: random.Random, bits: int = 64) -> int:
    """A signed number: often at an edge, else of any size."""
    edge = 1 << (bits - 1)
    if chance.random() < 0.5:
        return chance.choice((0, 1, -1, 2, edge - 1, -edge, edge // 2))
    return chance.randrange(-(1 << chance.randrange(1, bits)), 1 << chance.randrange(1, bits))
