# SPDX-License-Identifier: Apache-2.0
"""Absences of owners, which decide whose spare worker a pool keeps."""

import math
from collections import OrderedDict

from updraft_server.pool.leases import Owner

_REMEMBERED_OWNERS = 1024


class Absences:
    """Record of how long owners stay away after another owner has taken their worker's place.

    Time is counted in places taken. An owner that comes back after a few of them keeps its worker, even if hundreds of
    other owners take turns in between.
    """

    def __init__(self) -> None:
        self._taken = 0
        # Start of the current or last absence, and length of the last one. The owner that left last is at the end.
        self._owners: OrderedDict[Owner | None, tuple[int, float]] = OrderedDict()

    def began(self, owner: Owner | None) -> None:
        """Record that another owner has taken the place of this owner's worker."""
        self._taken += 1
        _, last = self._owners.pop(owner, (0, math.inf))
        self._owners[owner] = (self._taken, last)
        if len(self._owners) > _REMEMBERED_OWNERS:
            self._owners.popitem(last=False)

    def ended(self, owner: Owner | None) -> None:
        """Record that this owner needs a place again."""
        if owner in self._owners:
            start, _ = self._owners[owner]
            self._owners[owner] = (start, self._taken - start)

    def expected(self, owner: Owner | None) -> float:
        """Return how long an absence of this owner lasts: as long as its last one, but at least until now."""
        if owner not in self._owners:
            return 0
        start, last = self._owners[owner]
        return max(last, self._taken - start)
