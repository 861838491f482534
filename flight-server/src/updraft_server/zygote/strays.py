# SPDX-License-Identifier: Apache-2.0
"""Processes that functions started and that have lost their worker: they come to the zygote, which ends them."""

import os
from collections.abc import Callable, Collection

from updraft_server.linux.descendants import children, kill_child

_Watch = Callable[[int, Callable[[], None]], None]


class Strays:
    """The children of this process that it did not fork.

    Their own children come here when they have ended: `end` has to be called after each turn of a loop, which the end
    of a stray makes turn.
    """

    def __init__(self, watch: _Watch, unwatch: Callable[[int], None]) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._dying: set[int] = set()

    def end(self, *, known: Collection[int]) -> bool:
        """Kill every child but those `known`; False when there is none."""
        found = [pid for pid in children() if pid not in known]
        for pid in found:
            kill_child(pid)
            if pid not in self._dying:
                self._await(pid)
        return bool(found)

    def _await(self, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            # Too many at once for our descriptors: the next turn comes.
            return
        self._dying.add(pid)
        self._watch(pidfd, lambda: self._reap(pid, pidfd))

    def _reap(self, pid: int, pidfd: int) -> None:
        self._unwatch(pidfd)
        os.close(pidfd)
        self._dying.discard(pid)
        os.waitpid(pid, 0)
