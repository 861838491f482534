# SPDX-License-Identifier: Apache-2.0
"""Which broadcast variables PySpark's worker in this process knows, as Spark keeps it for its own workers.

A value is unpickled on first use and stays for the next task of the application that uses it. Ids mean something within
one application only.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple


class BroadcastChanges(NamedTuple):
    """What PySpark's worker is told."""

    added: Mapping[int, str]
    """Where the pickled values of new variables are, by id."""
    removed: frozenset[int]


class KnownBroadcasts:
    """The variables of the last exchange."""

    def __init__(self) -> None:
        self._application_id = ""
        self._paths: Mapping[int, str] = {}

    @property
    def ids(self) -> Set[int]:
        """The variables that PySpark's worker may keep."""
        return self._paths.keys()

    def change_to(self, application_id: str, paths: Mapping[int, str]) -> BroadcastChanges:
        """What differs from the exchange before; another application begins with nothing."""
        known = self._paths if application_id and application_id == self._application_id else {}
        added = {number: path for number, path in paths.items() if known.get(number) != path}
        removed = frozenset(self._paths.keys() - (paths.keys() - added.keys()))
        self._application_id, self._paths = application_id, dict(paths)
        return BroadcastChanges(added, removed)
