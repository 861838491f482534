# SPDX-License-Identifier: Apache-2.0
"""Binding of workers to owners, and choice of the worker that makes room if no idle worker may serve an owner.

This module holds only policy. Whatever an exchange leaves in a process (modules, memory, patched libraries) cannot be
removed, so a worker serves one owner until it ends. Registered functions together count as one owner: their workers
process rows of all clients, and session code must not find these rows there.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from updraft_server.pool.leases import Owner


class Binding(NamedTuple):
    """Binding of a worker to the owner that its exchange serves."""

    owner: Owner | None
    """Owner of the session function; None for a registered function."""
    modules: str = ""
    """Key of the files and environment that a session's modules were imported with; empty if there are none."""
    restricted: bool = False
    """Whether a registered function runs without network and subprocesses. Its worker then loses both for good."""

    @property
    def is_lasting(self) -> bool:
        """Whether a later exchange may use the same worker.

        A client that names no application cannot prove that it is the same client as before.
        """
        return self.owner is None or self.owner.application_id != ""

    def can_serve(self, wanted: "Binding") -> bool:
        """Return whether a worker with this binding may serve an exchange with the binding `wanted`."""
        is_alike = self.owner == wanted.owner and self.restricted == wanted.restricted
        return self.is_lasting and is_alike and self.modules in ("", wanted.modules)


REGISTERED = Binding(None)
"""Binding that a registered function gives its worker."""


class Bound(NamedTuple):
    """Idle worker, as seen by the functions that choose between several."""

    binding: Binding | None
    """None if the worker has not served yet."""
    used: int
    """Number that grows with each use of any worker; 0 if this worker has not served yet."""


Key = TypeVar("Key")


def best(idle: Sequence[tuple[Key, Bound]], wanted: Binding) -> Key | None:
    """Return the worker that has already loaded most of what the exchange needs, or None if no worker may serve it.

    Of several equal workers, return the worker that was used last.
    """
    fitting = [(key, bound) for key, bound in idle if bound.binding is None or bound.binding.can_serve(wanted)]
    if not fitting:
        return None
    # `max` returns the first of several equal workers. Reverse the list, so that workers that started later are first.
    fitting.reverse()
    return max(fitting, key=lambda each: (each[1].binding == wanted, each[1].used))[0]


def victim(idle: Sequence[tuple[Key, Bound]]) -> Key | None:
    """Return the idle worker that makes room for another owner, or None if no worker is idle.

    This is the least recently used worker of the owner with the most idle workers. An owner with one idle worker keeps
    that worker as long as another owner has two. So owners that take turns keep their workers.
    """
    owned = Counter(_owner(bound) for _, bound in idle)
    return min(idle, key=lambda each: (-owned[_owner(each[1])], each[1].used))[0] if idle else None


def superfluous(spares: Sequence[tuple[Key, Bound]], expected_absence: Callable[[Owner | None], float]) -> Key:
    """Return the spare to end if there are too many.

    Choose an owner with the most spares. If several owners tie, choose the owner that is expected to stay away longest.
    Return that owner's least recently used spare.
    """
    owned = Counter(_owner(bound) for _, bound in spares)

    def rank(spare: tuple[Key, Bound]) -> tuple[float, ...]:
        owner = _owner(spare[1])
        return (-owned[owner], -expected_absence(owner), spare[1].used)

    return min(spares, key=rank)[0]


def _owner(bound: Bound) -> Owner | None:
    return bound.binding.owner if bound.binding is not None else None
