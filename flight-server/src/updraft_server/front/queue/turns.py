# SPDX-License-Identifier: Apache-2.0
"""Turns of tenants and owners: the order in which ready exchanges get free workers.

The tenant with the fewest workers receives a free worker. If several tenants have the fewest, the tenant that has used
the least worker time recently comes first. All tenants that have used a full turn or more are equal. While a tenant
requests no worker, its share of the workers is deducted from its used time. So a tenant that requests workers only now
and then comes before tenants that always do. Equal tenants take turns. A turn is a short time, not one exchange: a
worker serves only one owner, so each change of turns ends a worker.

This is policy only; the caller provides the clock. The time for a choice does not grow with the number of waiting
tenants.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from updraft_server.pool.leases import Owner

TURN_SECONDS = 0.5
"""Length of a turn. It is long compared with the start of a worker and its imports, but short for an exchange that
waits."""
# Unit in which used worker time is compared; tenants with the same number of steps are equal.
_STEP_SECONDS = TURN_SECONDS / 8
# Cap on the used time of a tenant. Without it, a tenant that was alone for a day would be last for days.
_MOST_USED_SECONDS = 8 * TURN_SECONDS
# Maximum number of tenants whose used time is remembered.
_MOST_TENANTS = 4096

Item = TypeVar("Item")
Key = TypeVar("Key")


class Turn(NamedTuple):
    """Consecutive exchanges of one owner; the last of them got its worker at `granted_seconds`."""

    tenant: str
    owner: Owner | None
    began_seconds: float
    granted_seconds: float


class _Lane(NamedTuple):
    """Rank of tenants. Tenants with equal ranks share a lane, and the lowest lane is served first."""

    at_work: int
    used_steps: int
    """Recently used worker time, in steps, capped at a full turn."""

    @property
    def has_used_a_turn(self) -> bool:
        """Whether the lane's tenants have used a full turn recently, so that they have no advantage."""
        return self.used_steps * _STEP_SECONDS >= TURN_SECONDS


class _Lanes:
    """Tenants by lane, within each lane in order of arrival."""

    def __init__(self) -> None:
        self._lanes: dict[_Lane, OrderedDict[str, None]] = {}
        self._of: dict[str, _Lane] = {}

    def put(self, tenant: str, lane: _Lane | None) -> None:
        """Move a tenant to the end of a lane, unless it is in that lane already; None removes it from all lanes."""
        before = self._of.get(tenant)
        if before == lane:
            return
        if before is not None:
            del self._of[tenant]
            del self._lanes[before][tenant]
            if not self._lanes[before]:
                del self._lanes[before]
        if lane is not None:
            self._of[tenant] = lane
            self._lanes.setdefault(lane, OrderedDict())[tenant] = None

    def lane_of(self, tenant: str) -> _Lane | None:
        return self._of.get(tenant)

    def first(self, lane: _Lane) -> str | None:
        return next(iter(self._lanes.get(lane, ())), None)

    def last_that_has_used_a_turn(self) -> str | None:
        """Return the last tenant in the order that has used a full turn, or None."""
        lanes = [lane for lane in self._lanes if lane.has_used_a_turn]
        return next(reversed(self._lanes[max(lanes)])) if lanes else None

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __iter__(self) -> Iterator[tuple[_Lane, OrderedDict[str, None]]]:
        # The number of lanes grows with the workers per tenant, not with the number of waiting tenants.
        return ((lane, self._lanes[lane]) for lane in sorted(self._lanes))


@dataclass(slots=True)
class _Use:
    seconds: float
    quiet_since: float | None
    """Time at which the tenant stopped asking; None while it asks."""


class Turns(Generic[Item]):
    """Items that are ready for a worker, and the workers that their tenants have."""

    def __init__(
        self, *, idle: Callable[[], int], most_workers: Callable[[str], int | None], now: Callable[[], float]
    ) -> None:
        """Create the turns of one pool, without items.

        Args:
            idle: Returns the number of idle workers.
            most_workers: Returns how many workers a tenant may have; None means any number.
            now: Returns the time in seconds.
        """
        self._idle = idle
        self._most_workers = most_workers
        self._now = now
        self._ready: dict[str, OrderedDict[Owner | None, dict[Item, None]]] = {}
        self._lanes = _Lanes()
        self._lanes_of_registered = _Lanes()
        """Lanes of the tenants that wait for a worker of registered functions."""
        self._at_work: Counter[str] = Counter()
        self._at_work_for_owners: Counter[tuple[str, Owner | None]] = Counter()
        self._uses: OrderedDict[str, _Use] = OrderedDict()
        self._last = Turn("", None, float("-inf"), float("-inf"))
        """Turn of the last exchange that gave its worker back."""

    def __bool__(self) -> bool:
        """Return whether any item is ready and its tenant may have a worker."""
        return bool(self._lanes)

    def add(self, tenant: str, owner: Owner | None, item: Item) -> None:
        """Add an item that is ready for a worker."""
        if tenant not in self._ready:
            self._ready[tenant] = OrderedDict()
            self._comes(tenant)
        self._ready[tenant].setdefault(owner, {})[item] = None
        self._stand(tenant)

    def discard(self, tenant: str, owner: Owner | None, item: Item) -> None:
        """Remove an item that has received a worker or has left the queue; ignore an item that is not ready."""
        owners = self._ready.get(tenant)
        if owners is None or item not in owners.get(owner, ()):
            return
        del owners[owner][item]
        if owners[owner]:
            owners.move_to_end(owner)
        else:
            del owners[owner]
        if not owners:
            del self._ready[tenant]
            self._use(tenant).quiet_since = self._now()
        self._stand(tenant)

    def at_work(self, tenant: str) -> int:
        """Return the number of workers that a tenant has."""
        return self._at_work[tenant]

    @property
    def tenants_at_work(self) -> int:
        """Number of tenants that have workers."""
        return len(self._at_work)

    def count(self, tenant: str, owner: Owner | None, change: int) -> None:
        """Change the number of workers that a tenant has for an owner; `change` may be 0."""
        add(self._at_work, tenant, change)
        add(self._at_work_for_owners, (tenant, owner), change)
        self._stand(tenant)

    def begun(self, tenant: str, owner: Owner | None) -> Turn:
        """Return the turn of an exchange that has just received its worker."""
        now = self._now()
        began_seconds = self._last.began_seconds if self._goes_on(owner) else now
        return Turn(tenant, owner, began_seconds, now)

    def ended(self, turn: Turn) -> None:
        """Record the time that an exchange has used, and count its worker as free."""
        use = self._use(turn.tenant)
        use.seconds = min(_MOST_USED_SECONDS, use.seconds + self._now() - turn.granted_seconds)
        self._last = turn
        self.count(turn.tenant, turn.owner, -1)

    def has_used_a_turn(self, tenant: str) -> bool:
        """Return whether a tenant has used a full turn recently, so that the tenant has no advantage."""
        return self._lane(tenant).has_used_a_turn

    def last_that_has_used_a_turn(self) -> str | None:
        """Return the last waiting tenant in the order that has used a full turn, or None."""
        return self._lanes.last_that_has_used_a_turn()

    def candidates(self) -> Iterator[Item]:
        """Yield all items whose tenants may have a worker, in order. Any change invalidates the iterator."""
        for lane, tenants in self._lanes:
            going_on = self._going_on(lane)
            if going_on is not None:
                yield from self._of_tenant(going_on)
            for tenant in tenants:
                if tenant != going_on:
                    yield from self._of_tenant(tenant)

    def giving_way(self, tenants: Sequence[str]) -> list[int]:
        """Return the indices of unused workers to take from their tenants and give to waiting tenants.

        Each waiting tenant below its share receives one worker. The tenant with the most workers loses it, if that
        tenant has at least its own share. `tenants` lists the tenant of each unused worker.
        """
        if self._idle():
            return []
        share, at_work = self._share(), Counter(self._at_work)
        left, chosen = dict(enumerate(tenants)), []
        for waiting in [tenant for lane, lanes in self._lanes if lane.at_work < share for tenant in lanes]:
            most = max(left, key=lambda index: at_work[left[index]], default=None)
            if most is None or at_work[left[most]] < max(share, at_work[waiting] + 1):
                break
            at_work[left.pop(most)] -= 1
            chosen.append(most)
        return chosen

    def _of_tenant(self, tenant: str) -> Iterator[Item]:
        owners = self._ready[tenant]
        if len(owners) == 1:
            yield from next(iter(owners.values()))
            return
        for owner in sorted(owners, key=lambda owner: self._rank_of_owner(tenant, owner)):
            yield from owners[owner]

    def _rank_of_owner(self, tenant: str, owner: Owner | None) -> tuple[int, bool]:
        return self._at_work_for_owners[tenant, owner], not self._goes_on(owner)

    def _going_on(self, lane: _Lane) -> str | None:
        """Return the tenant whose turn still runs, if that tenant waits in this lane."""
        last = self._last
        if not self._goes_on(last.owner):
            return None
        if last.owner is None:
            # Workers of registered functions serve all tenants.
            return self._lanes_of_registered.first(lane)
        waits = self._lanes.lane_of(last.tenant) == lane and last.owner in self._ready[last.tenant]
        return last.tenant if waits else None

    def _goes_on(self, owner: Owner | None) -> bool:
        """Return whether the worker that was released last served this owner, and the owner's turn still runs."""
        return self._last.owner == owner and self._now() - self._last.began_seconds < TURN_SECONDS

    def _stand(self, tenant: str) -> None:
        """Move a tenant to the lane of its rank, or to no lane if it does not wait or may not have more workers."""
        owners = self._ready.get(tenant) or OrderedDict()
        most = self._most_workers(tenant)
        may_have_one = bool(owners) and (most is None or self._at_work[tenant] < most)
        lane = self._lane(tenant) if may_have_one else None
        self._lanes.put(tenant, lane)
        self._lanes_of_registered.put(tenant, lane if None in owners else None)

    def _lane(self, tenant: str) -> _Lane:
        use = self._uses.get(tenant)
        used_seconds = min(use.seconds, TURN_SECONDS) if use is not None else 0.0
        return _Lane(self._at_work[tenant], int(used_seconds / _STEP_SECONDS))

    def _comes(self, tenant: str) -> None:
        """Reduce a tenant's used time by its share of the workers for the time in which it requested no worker."""
        use = self._uses.get(tenant)
        if use is None:
            return
        if use.quiet_since is not None:
            use.seconds -= (self._now() - use.quiet_since) * self._share()
        if use.seconds <= 0:
            del self._uses[tenant]
        else:
            use.quiet_since = None

    def _share(self) -> float:
        """Return the number of workers per tenant if all tenants that have or want workers share them equally."""
        workers = self._at_work.total() + self._idle()
        tenants = len(self._ready) + sum(tenant not in self._ready for tenant in self._at_work)
        return workers / max(1, tenants)

    def _use(self, tenant: str) -> _Use:
        """Return the record of a tenant's used time; callers may change the record."""
        if tenant not in self._uses:
            self._uses[tenant] = _Use(0.0, None if tenant in self._ready else self._now())
            if len(self._uses) > _MOST_TENANTS:
                self._uses.popitem(last=False)
        self._uses.move_to_end(tenant)
        return self._uses[tenant]


def add(counter: Counter[Key], key: Key, change: int) -> None:
    """Change a count. Drop a count of zero, because the number of different keys is unbounded."""
    counter[key] += change
    if counter[key] == 0:
        del counter[key]
