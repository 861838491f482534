# SPDX-License-Identifier: Apache-2.0
"""Policy that decides when a side that owes a sign of life has been silent for too long.

Services limit silence, not work. The watcher samples counters that exist anyway, so messages cost nothing extra. This
module uses neither a clock nor a transport.
"""

from collections.abc import Hashable

_LOOKS_PER_LIMIT = 4
_MAX_SECONDS_BETWEEN_LOOKS = 30.0


class Silence:
    """Silence of one side; a limit of 0 seconds sets no limit.

    Call `is_too_long` no more often than every `look_seconds`. The default interval is what `seconds_between_looks`
    returns for the limit. Silence is counted in checks, not by the clock: time during which the watcher itself was
    stopped does not count.
    """

    def __init__(self, limit_seconds: float, look_seconds: float | None = None) -> None:
        self.limit_seconds = limit_seconds
        self.look_seconds = seconds_between_looks(limit_seconds) if look_seconds is None else look_seconds
        self._signs: Hashable = None
        self._owed = False
        self._quiet_seconds = 0.0

    def is_too_long(self, signs: Hashable, *, owed: bool) -> bool:
        """Return whether the side has owed a sign of life for the whole limit without giving one.

        `signs` changes with every sign. Time during which the side owes nothing does not count.
        """
        if owed and self._owed and signs == self._signs:
            self._quiet_seconds += self.look_seconds
        else:
            self._signs, self._owed, self._quiet_seconds = signs, owed, 0.0
        return 0 < self.limit_seconds <= self._quiet_seconds


def seconds_between_looks(*limits_seconds: float) -> float:
    """Return the interval of checks: a quarter of the shortest limit, at most 30 seconds. A limit of 0 is ignored."""
    enough = [limit / _LOOKS_PER_LIMIT for limit in limits_seconds if limit]
    return min([*enough, _MAX_SECONDS_BETWEEN_LOOKS])
