# SPDX-License-Identifier: Apache-2.0
"""Decides when a side that owes a sign of life has been silent for too long.

Work has no limit; silence has one. The watcher samples counters that are kept anyway, so that messages cost nothing
extra. Policy alone: it knows neither a clock nor a transport.
"""

from collections.abc import Hashable

_LOOKS_PER_LIMIT = 4
_MAX_SECONDS_BETWEEN_LOOKS = 30.0


class Silence:
    """The silence of one side, checked at most every `look_seconds`. A limit of 0 seconds is no limit.

    Silence is counted in checks, not by the clock: if the watcher itself was stopped for a while, nobody is blamed.
    """

    def __init__(self, limit_seconds: float, look_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._look_seconds = look_seconds
        self._signs: Hashable = None
        self._owed = False
        self._quiet_seconds = 0.0

    def is_too_long(self, signs: Hashable, *, owed: bool) -> bool:
        """Whether the side has owed a sign for the whole limit without giving one; `signs` changes with every sign.

        Time in which the side owes nothing does not count.
        """
        if owed and self._owed and signs == self._signs:
            self._quiet_seconds += self._look_seconds
        else:
            self._signs, self._owed, self._quiet_seconds = signs, owed, 0.0
        return 0 < self.limit_seconds <= self._quiet_seconds


def seconds_between_looks(*limits_seconds: float) -> float:
    """How often to check, so that a silence is found soon after the shortest of these limits. 0 is no limit."""
    enough = [limit / _LOOKS_PER_LIMIT for limit in limits_seconds if limit]
    return min([*enough, _MAX_SECONDS_BETWEEN_LOOKS])
