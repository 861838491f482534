# SPDX-License-Identifier: Apache-2.0
"""Whose a worker is, for good, and which idle worker goes when none may serve the owner that comes.

Policy alone. What an exchange leaves in a process (modules, memory, patched libraries) cannot be taken out again, so a
worker serves one owner until it ends. Registered functions count as an owner of their own: rows of every client pass
through their workers, and code that a session ships must not find them there.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from updraft_server.pool.leases import Owner


class Binding(NamedTuple):
    """What an exchange makes of its worker."""

    owner: Owner | None
    """Whose session function it runs; None: a registered function."""
    modules: str = ""
    """Names the files and environment that a session's modules were imported with; empty for none of them."""
    restricted: bool = False
    """Whether a registered function runs without network and subprocesses: its worker never gets them back."""

    @property
    def is_lasting(self) -> bool:
        """Whether a later exchange may have the same worker: a client that names no application cannot prove itself
        to be the one that came before."""
        return self.owner is None or self.owner.application_id != ""

    def can_serve(self, wanted: "Binding") -> bool:
        """Whether a worker that this has been made of may be made `wanted`."""
        is_alike = self.owner == wanted.owner and self.restricted == wanted.restricted
        return self.is_lasting and is_alike and self.modules in ("", wanted.modules)


REGISTERED = Binding(None)
"""What a registered function makes of its worker."""


class Bound(NamedTuple):
    """An idle worker, as a choice between several sees it."""

    binding: Binding | None
    """None: it has not served yet."""
    used: int
    """Grows with each use of any worker; 0: it has not served yet."""


Key = TypeVar("Key")


def best(idle: Sequence[tuple[Key, Bound]], wanted: Binding) -> Key | None:
    """The worker that has most of what the exchange needs loaded, of equals the one used last; None: no one may."""
    fitting = [(key, bound) for key, bound in idle if bound.binding is None or bound.binding.can_serve(wanted)]
    if not fitting:
        return None
    # Of equals the last: that is the one that has started last.
    fitting.reverse()
    return max(fitting, key=lambda each: (each[1].binding == wanted, each[1].used))[0]


def victim(idle: Sequence[tuple[Key, Bound]]) -> Key | None:
    """The worker to give up: the least recently used of the owner that has most of them; None where there is none.

    An owner with one idle worker keeps it as long as another has two: owners that take turns do not rob each other.
    """
    owned = Counter(_owner(bound) for _, bound in idle)
    return min(idle, key=lambda each: (-owned[_owner(each[1])], each[1].used))[0] if idle else None


def _owner(bound: Bound) -> Owner | None:
    return bound.binding.owner if bound.binding is not None else None
