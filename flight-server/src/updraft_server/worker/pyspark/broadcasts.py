# SPDX-License-Identifier: Apache-2.0
"""Broadcast variables that PySpark's worker in this process knows, kept as Spark keeps them for its own workers.

A value is unpickled on first use and stays for the next task of the application that uses it. Ids are valid within one
application only.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple


class BroadcastChanges(NamedTuple):
    """Changes to the broadcast variables, for PySpark's worker."""

    added: Mapping[int, str]
    """Path of each new variable's pickled value, by id."""
    removed: frozenset[int]


class KnownBroadcasts:
    """Broadcast variables of the last exchange."""

    def __init__(self) -> None:
        self._application_id = ""
        self._paths: Mapping[int, str] = {}

    @property
    def ids(self) -> Set[int]:
        """Ids of the variables that PySpark's worker may keep."""
        return self._paths.keys()

    def change_to(self, application_id: str, paths: Mapping[int, str]) -> BroadcastChanges:
        """Switch to the variables of an exchange and return the changes; a new application starts without any."""
        known = self._paths if application_id and application_id == self._application_id else {}
        added = {number: path for number, path in paths.items() if known.get(number) != path}
        removed = frozenset(self._paths.keys() - (paths.keys() - added.keys()))
        self._application_id, self._paths = application_id, dict(paths)
        return BroadcastChanges(added, removed)
