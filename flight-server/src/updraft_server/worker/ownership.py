# SPDX-License-Identifier: Apache-2.0
"""Whose a worker is. The front gives it exchanges of one owner; a worker does not trust it to.

A mistake of the front would otherwise hand one owner what another one has left in the process.
"""

from updraft.errors import InternalError
from updraft_server.ipc.assignment import Assignment


class Ownership:
    """Nobody's until the first exchange, and one owner's from then on."""

    def __init__(self) -> None:
        self._owner: tuple[str, ...] = ()
        self._may_go_on = True

    @property
    def is_lasting(self) -> bool:
        """Whether the worker may have another exchange: of a client that names no application nobody knows which
        exchanges are its own."""
        return self._may_go_on

    def take(self, assignment: Assignment) -> None:
        """Belong to the owner of the exchange; raises InternalError where that is not whose the worker is."""
        is_registered = bool(assignment.function_name)
        owner = _registered(assignment) if is_registered else tuple(assignment.owner)
        if not is_registered and len(owner) != 3:
            raise InternalError("the front sent a session function without an owner")
        if not self._may_go_on or self._owner not in ((), owner):
            raise InternalError("the front sent an exchange of another owner to a worker that has served one")
        self._owner = owner
        self._may_go_on = is_registered or owner[1] != ""


def _registered(assignment: Assignment) -> tuple[str, ...]:
    """Functions that are deployed with the pool: no session's code may run where their clients' rows have been."""
    return ("registered functions", "restricted") if assignment.restricted else ("registered functions",)
