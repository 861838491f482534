# SPDX-License-Identifier: Apache-2.0
"""Absences of owners. They determine whose spare worker a pool keeps."""

import math
from collections import OrderedDict

from updraft_server.pool.leases import Owner

_REMEMBERED_OWNERS = 1024


class Absences:
    """Record of how long owners stay away after another owner has taken their worker's place.

    Absences are measured in places that other owners have taken meanwhile, not in seconds. Even if hundreds of owners
    take turns, an owner whose absences are always short keeps its worker.
    """

    def __init__(self) -> None:
        self._taken = 0
        # Start of the current absence (None while the owner is present), and length of the last absence. The owner that
        # left last is at the end.
        self._owners: OrderedDict[Owner | None, tuple[int | None, float]] = OrderedDict()

    def began(self, owner: Owner | None) -> None:
        """Record that another owner has taken the place of this owner's worker."""
        self._taken += 1
        start, last = self._owners.pop(owner, (None, math.inf))
        self._owners[owner] = (self._taken if start is None else start, last)
        if len(self._owners) > _REMEMBERED_OWNERS:
            self._owners.popitem(last=False)

    def ended(self, owner: Owner | None) -> None:
        """Record that this owner needs a place again."""
        start, _ = self._owners.get(owner, (None, 0))
        if start is not None:
            self._owners[owner] = (None, self._taken - start)

    def expected(self, owner: Owner | None) -> float:
        """Return the owner's expected absence: the last absence, or the current absence if it is already longer."""
        start, last = self._owners.get(owner, (None, 0))
        return last if start is None else max(last, self._taken - start)
