# SPDX-License-Identifier: Apache-2.0
"""How long a function has worked on one batch, since it took that. `linux.processor_time` counts the CPU time.

Only another batch begins a new count. Whatever else a worker sends does not: neither its output nor a number of batches
that it says twice or takes back. The end of the input does not either: what follows the last batch counts for that.
"""


class WorkTime:
    """Seconds for which a function has worked, counted in looks: if the front itself stood still, nobody is blamed."""

    def __init__(self, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._taken = 0
        self._seconds = 0.0
        self._was_working = False

    def looked(self, taken: int, *, is_working: bool) -> float:
        """The seconds so far; `taken` counts the batches that the function has taken.

        Time that it does not work, since it waits for the client, counts neither for it nor against it.
        """
        if taken > self._taken:
            self._taken, self._seconds = taken, 0.0
        elif is_working and self._was_working:
            self._seconds += self._look_seconds
        self._was_working = is_working
        return self._seconds
