# SPDX-License-Identifier: Apache-2.0
"""Owner that a worker is bound to. The front sends a worker exchanges of only one owner, and the worker checks that.

Without this check, a mistake of the front would show one owner what another one has left in the process.
"""

from updraft.errors import InternalError
from updraft_server.ipc.assignment import Assignment


class Ownership:
    """Owner of a worker, bound at its first exchange."""

    def __init__(self) -> None:
        self._owner: tuple[str, ...] = ()
        self._may_go_on = True

    @property
    def is_lasting(self) -> bool:
        """Whether the worker may serve another exchange.

        After a client that names no application it may not, because nothing tells which other exchanges are that
        client's.
        """
        return self._may_go_on

    def take(self, assignment: Assignment) -> None:
        """Bind the worker to the owner of the exchange; raises InternalError if it belongs to another owner."""
        is_registered = bool(assignment.function_name)
        owner = _registered(assignment) if is_registered else tuple(assignment.owner)
        if not is_registered and len(owner) != 3:
            raise InternalError("the front sent a session function without an owner")
        if not self._may_go_on or self._owner not in ((), owner):
            raise InternalError("the front sent an exchange of another owner to a worker that has served one")
        self._owner = owner
        self._may_go_on = is_registered or owner[1] != ""


def _registered(assignment: Assignment) -> tuple[str, ...]:
    """Return the owner of all registered functions: no session code may run where their clients' rows have been."""
    return ("registered functions", "restricted") if assignment.restricted else ("registered functions",)
