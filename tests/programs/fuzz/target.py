# SPDX-License-Identifier: Apache-2.0
"""Fuzz target: a reader of bytes, and a generator of inputs that are almost valid."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Pieces = list[bytes]
"""Parts of one input, in the form that the target's reader expects."""

_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


@dataclass(frozen=True, slots=True)
class Target:
    """Reader that hostile bytes can reach."""

    name: str
    make: Callable[[random.Random], Pieces]
    """Function that makes an input: a valid input with changes, or an input from a pattern."""
    read: Callable[[Pieces], None]
    """Function that reads an input as the service does. An unexpected exception is a finding."""


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Change, delete, duplicate or cut off some of the bytes."""
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
    """Return a signed number, often at one of the limits."""
    edge = 1 << (bits - 1)
    if chance.random() < 0.5:
        return chance.choice((0, 1, -1, 2, edge - 1, -edge, edge // 2))
    return chance.randrange(-(1 << chance.randrange(1, bits)), 1 << chance.randrange(1, bits))
