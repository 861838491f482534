# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is when a worker becomes free, among those who are ready for one.

A worker goes to the tenant with the fewest at work. Among equals the one that has used least lately comes first, up to
as much worker time as a turn takes: while it asks for nothing, its share makes up for what it has used. So a tenant
does not stand behind all that always ask if it asks now and then. The others take turns, of a moment each rather than
of an exchange: a worker serves one owner, so each change of turns ends one.

Policy alone, with a clock handed in. No choice takes longer where more tenants wait.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from updraft_server.pool.leases import Owner

TURN_SECONDS = 0.5
"""Long beside the start of a worker and the imports of its functions, short for who waits."""
# Tenants that have used about as much are equals.
_STEP_SECONDS = TURN_SECONDS / 8
# More is not remembered: it would keep a tenant that was alone for a day behind all others for days.
_MOST_USED_SECONDS = 8 * TURN_SECONDS
# Of more nobody remembers what they have used.
_MOST_TENANTS = 4096

Item = TypeVar("Item")
Key = TypeVar("Key")


class Turn(NamedTuple):
    """Exchanges of one owner, one behind the other; the last of them got its worker at `granted_seconds`."""

    tenant: str
    owner: Owner | None
    began_seconds: float
    granted_seconds: float


class _Lane(NamedTuple):
    """Tenants that are equal; the least goes first."""

    at_work: int
    used_steps: int
    """Of worker time lately; those that have used a turn or more are equals."""

    @property
    def has_used_a_turn(self) -> bool:
        """Whether it has no advantage over anybody."""
        return self.used_steps * _STEP_SECONDS >= TURN_SECONDS


class _Lanes:
    """Tenants by lane, in each as they came to it."""

    def __init__(self) -> None:
        self._lanes: dict[_Lane, OrderedDict[str, None]] = {}
        self._of: dict[str, _Lane] = {}

    def put(self, tenant: str, lane: _Lane | None) -> None:
        """Move a tenant to the end of a lane, unless it stands there already; None: it waits in none."""
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
        """Who would be served last of those."""
        lanes = [lane for lane in self._lanes if lane.has_used_a_turn]
        return next(reversed(self._lanes[max(lanes)])) if lanes else None

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __iter__(self) -> Iterator[tuple[_Lane, OrderedDict[str, None]]]:
        # As many as there are different numbers of workers at work.
        return ((lane, self._lanes[lane]) for lane in sorted(self._lanes))


@dataclass(slots=True)
class _Use:
    seconds: float
    quiet_since: float | None
    """When the tenant asked for nothing any more; None while it asks."""


class Turns(Generic[Item]):
    """Those who are ready for a worker, and what their tenants have at work."""

    def __init__(
        self, *, idle: Callable[[], int], most_workers: Callable[[str], int | None], now: Callable[[], float]
    ) -> None:
        """`idle` counts workers that nobody has; `most_workers` is what a tenant may have at work, None for any."""
        self._idle = idle
        self._most_workers = most_workers
        self._now = now
        self._ready: dict[str, OrderedDict[Owner | None, dict[Item, None]]] = {}
        self._lanes = _Lanes()
        self._lanes_of_registered = _Lanes()
        """The same for tenants with somebody who waits to run a registered function."""
        self._at_work: Counter[str] = Counter()
        self._at_work_for_owners: Counter[tuple[str, Owner | None]] = Counter()
        self._uses: OrderedDict[str, _Use] = OrderedDict()
        self._last = Turn("", None, float("-inf"), float("-inf"))
        """Of the exchange that gave its worker back last."""

    def __bool__(self) -> bool:
        """Whether anybody waits who may have a worker."""
        return bool(self._lanes)

    def add(self, tenant: str, owner: Owner | None, item: Item) -> None:
        """Somebody is ready for a worker."""
        if tenant not in self._ready:
            self._ready[tenant] = OrderedDict()
            self._comes(tenant)
        self._ready[tenant].setdefault(owner, {})[item] = None
        self._stand(tenant)

    def discard(self, tenant: str, owner: Owner | None, item: Item) -> None:
        """Somebody has got one, or has left; nothing happens for who is not ready."""
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
        """Workers that a tenant has."""
        return self._at_work[tenant]

    def count(self, tenant: str, owner: Owner | None, change: int) -> None:
        """A worker more, or less, is at work; 0: as many."""
        add(self._at_work, tenant, change)
        add(self._at_work_for_owners, (tenant, owner), change)
        self._stand(tenant)

    def begun(self, tenant: str, owner: Owner | None) -> Turn:
        """The turn of an exchange that has just got its worker."""
        now = self._now()
        began_seconds = self._last.began_seconds if self._goes_on(owner) else now
        return Turn(tenant, owner, began_seconds, now)

    def ended(self, turn: Turn) -> None:
        """A worker came back, which no longer counts as at work."""
        use = self._use(turn.tenant)
        use.seconds = min(_MOST_USED_SECONDS, use.seconds + self._now() - turn.granted_seconds)
        self._last = turn
        self.count(turn.tenant, turn.owner, -1)

    def has_used_a_turn(self, tenant: str) -> bool:
        """Whether a tenant has used so much lately that it has no advantage over anybody."""
        return self._lane(tenant).has_used_a_turn

    def last_that_has_used_a_turn(self) -> str | None:
        """The tenant that would be served last of those that have no advantage; None: there is none who is ready."""
        return self._lanes.last_that_has_used_a_turn()

    def candidates(self) -> Iterator[Item]:
        """All who may have a worker, who is next first. Of no use any more once anything has changed."""
        for lane, tenants in self._lanes:
            going_on = self._going_on(lane)
            if going_on is not None:
                yield from self._of_tenant(going_on)
            for tenant in tenants:
                if tenant != going_on:
                    yield from self._of_tenant(tenant)

    def giving_way(self, tenants: Sequence[str]) -> list[int]:
        """Return the indices of unused workers to take from their tenants for tenants that wait.

        Each waiting tenant below its share gets one, from the tenant that has most workers and at least its share.
        `tenants` has the tenant of each unused worker.
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
        """The tenant whose turn is not over, if it waits in this lane."""
        last = self._last
        if not self._goes_on(last.owner):
            return None
        if last.owner is None:
            # Workers of registered functions serve all tenants.
            return self._lanes_of_registered.first(lane)
        waits = self._lanes.lane_of(last.tenant) == lane and last.owner in self._ready[last.tenant]
        return last.tenant if waits else None

    def _goes_on(self, owner: Owner | None) -> bool:
        """Whether the owner's turn is not over, if it is the one whose worker came back."""
        return self._last.owner == owner and self._now() - self._last.began_seconds < TURN_SECONDS

    def _stand(self, tenant: str) -> None:
        """Let a tenant stand where it belongs."""
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
        """A tenant asks again: while it did not, its share made up for what it had used."""
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
        """Workers for each tenant that has or wants any."""
        workers = self._at_work.total() + self._idle()
        tenants = len(self._ready) + sum(tenant not in self._ready for tenant in self._at_work)
        return workers / max(1, tenants)

    def _use(self, tenant: str) -> _Use:
        """What a tenant has used, to be changed."""
        if tenant not in self._uses:
            self._uses[tenant] = _Use(0.0, None if tenant in self._ready else self._now())
            if len(self._uses) > _MOST_TENANTS:
                self._uses.popitem(last=False)
        self._uses.move_to_end(tenant)
        return self._uses[tenant]


def add(counter: Counter[Key], key: Key, change: int) -> None:
    """Count, and keep no zeros: the names are without number."""
    counter[key] += change
    if counter[key] == 0:
        del counter[key]
