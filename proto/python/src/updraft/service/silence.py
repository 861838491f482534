# SPDX-License-Identifier: Apache-2.0
"""Decides when a side that has to show that it is alive has been silent for too long.

Work has no limit; silence has one. The watcher samples counters that change anyway, so that a message costs nothing
extra. This is policy alone: it knows neither a clock nor a transport.
"""

from collections.abc import Hashable

_LOOKS_PER_LIMIT = 4
_MAX_SECONDS_BETWEEN_LOOKS = 30.0


class Silence:
    """The silence of one side, looked at every `look_seconds` or less often; a limit of 0 seconds is none.

    Silence is counted in looks, not by the clock: a watcher that was itself stopped for a while blames nobody for it.
    """

    def __init__(self, limit_seconds: float, look_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._look_seconds = look_seconds
        self._signs: Hashable = None
        self._owed = False
        self._quiet_seconds = 0.0

    def is_too_long(self, signs: Hashable, *, owed: bool) -> bool:
        """Whether the side has owed a sign for the whole limit and given none; `signs` changes with every sign.

        Time in which the side owes nothing does not count.
        """
        if owed and self._owed and signs == self._signs:
            self._quiet_seconds += self._look_seconds
        else:
            self._signs, self._owed, self._quiet_seconds = signs, owed, 0.0
        return 0 < self.limit_seconds <= self._quiet_seconds


def seconds_between_looks(*limits_seconds: float) -> float:
    """How often to look, so that a silence is found soon after the shortest of these limits, of which 0 is none."""
    enough = [limit / _LOOKS_PER_LIMIT for limit in limits_seconds if limit]
    return min([*enough, _MAX_SECONDS_BETWEEN_LOOKS])
