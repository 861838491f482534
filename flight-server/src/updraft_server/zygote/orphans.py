# SPDX-License-Identifier: Apache-2.0
"""Orphans: processes that functions started and that have lost their worker. The zygote inherits and ends them."""

import os
from collections.abc import Callable, Collection

from updraft_server.linux.descendants import children, kill_child

_Watch = Callable[[int, Callable[[], None]], None]


class Orphans:
    """Children of this process that it did not fork.

    When an orphan ends, its own children become children of this process. Call `end` after each turn of the loop to
    find them; the end of an orphan makes the loop turn.
    """

    def __init__(self, watch: _Watch, unwatch: Callable[[int], None]) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._dying: set[int] = set()

    def end(self, *, known: Collection[int]) -> bool:
        """Kill every child that is not in `known`; returns False if there was none to kill."""
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
            # There are more orphans than free descriptors: the next turn handles the rest.
            return
        self._dying.add(pid)
        self._watch(pidfd, lambda: self._reap(pid, pidfd))

    def _reap(self, pid: int, pidfd: int) -> None:
        self._unwatch(pidfd)
        os.close(pidfd)
        self._dying.discard(pid)
        os.waitpid(pid, 0)
