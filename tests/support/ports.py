# SPDX-License-Identifier: Apache-2.0
"""Unused ports of this machine, for services that have to know their port before they listen."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

_NOT_GIVEN_BY_CHANCE = range(10_000, 31_000)


def free_ports() -> Iterator[int]:
    """Yield unused ports, each once.

    They lie below the range from which the kernel picks ports for connections and for port 0. So no other process
    receives one of these ports by chance before the service starts or while it restarts.
    """
    return filter(_is_free, random.sample(_NOT_GIVEN_BY_CHANCE, len(_NOT_GIVEN_BY_CHANCE)))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
