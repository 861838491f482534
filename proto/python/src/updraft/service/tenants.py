# SPDX-License-Identifier: Apache-2.0
"""What one tenant may take of a service: caps that an operator sets, and how often each of them refused something."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from updraft.service.metrics import Metrics

EVERY_TENANT = "*"
"""Names the caps of all tenants that have none of their own."""


@dataclass(frozen=True, slots=True)
class TenantCaps:
    """The most that one tenant may have at a time; None: no cap of its own. The fields are the keys of the file."""

    max_workers: int | None = None
    """Workers at work, beyond which none of its exchanges gets one, unless its task holds one already."""
    max_waiting: int | None = None
    """Exchanges that wait for a worker."""
    max_queue_bytes: int | None = None
    """Memory of the exchanges that wait."""
    max_artifact_bytes: int | None = None
    """Room in a pool's store of artifacts."""
    max_quota_bytes: int | None = None
    """Of a writer's quota, at the time a batch asks for more."""
    max_files: int | None = None
    """Open files of a writer."""


NO_CAPS = TenantCaps()
# Who was refused comes again within this time.
_CLAIM_SECONDS = 10.0
_MOST_CLAIMS = 4096
# What has to end before a tenant gets more, for each cap that refuses.
_UNITS = {
    "max_waiting": "waiting exchanges",
    "max_queue_bytes": "bytes of waiting exchanges",
    "max_artifact_bytes": "bytes of artifacts that running exchanges need",
    "max_quota_bytes": "bytes of the quota",
    "max_files": "open files",
}


class Caps:
    """The caps of all tenants as they are now, and a count of what they refused."""

    def __init__(self, caps_of: Callable[[str], TenantCaps] = lambda _tenant: NO_CAPS) -> None:
        self.of = caps_of
        self.refusals = dict.fromkeys(_UNITS, 0)
        """By cap: how often it refused something, to any tenant."""

    def show_in(self, metrics: Metrics) -> None:
        """Add the counter of refusals."""
        metrics.count_by_label(
            f"{metrics.prefix}_tenant_cap_refusals",
            "Refusals because a tenant would have had more than its cap, by cap.",
            "cap",
            lambda: self.refusals,
        )

    def exceeded(self, cap: str, tenant: str, used: int, more: int) -> bool:
        """Whether a tenant may not have so much more."""
        limit = getattr(self.of(tenant), cap)
        return limit is not None and used + more > limit

    def refusal(self, cap: str, tenant: str, used: int, more: int) -> str:
        """What the tenant is told; counts as a refusal."""
        self.refusals[cap] += 1
        limit = getattr(self.of(tenant), cap)
        return (
            f"the tenant {tenant!r} has {used} {_UNITS[cap]} and wants {more} more, its cap is {limit}: retry when "
            f"some of its own have ended, or raise {cap} of its [[tenant]] in the service's identities file"
        )


# The reserve has room for so many tenants: the others share seven eighths of everything.
_RESERVED_TENANTS = 10
_RESERVE_DIVISOR = 8


def own_room(limit: int) -> int:
    """Part of a service's room that each of ten tenants has for itself; all ten parts are an eighth of it."""
    return limit // (_RESERVE_DIVISOR * _RESERVED_TENANTS)


class Reserve:
    """Room of which each of ten tenants has a part for itself. All share the rest, and one alone may have all of that.

    A tenant that takes no more than its own part finds it free, whatever nine others take. `limit` is the whole room
    and `own` the part of each, in the same unit.
    """

    def __init__(self, limit: int, own: int) -> None:
        self._own = own
        self._shared = limit - _RESERVED_TENANTS * own
        self._beyond = 0
        self.used: Counter[str] = Counter()
        """Amount that each tenant holds; `count` changes it."""

    def count(self, tenant: str, change: int) -> None:
        """Add a change, which may be negative, to the amount of a tenant."""
        used = self.used[tenant]
        self._beyond += self._beyond_own(used + change) - self._beyond_own(used)
        self.used[tenant] = used + change
        if not self.used[tenant]:
            del self.used[tenant]

    def is_own(self, tenant: str, more: int) -> bool:
        """Whether a tenant that takes so much more stays within its own part."""
        return self.used[tenant] + more <= self._own

    def missing(self, tenant: str, more: int) -> int:
        """Return the shared room to free before a tenant may take so much more; 0 or less if it may take it now."""
        if self.is_own(tenant, more):
            return 0
        used = self.used[tenant]
        return self._beyond - self._beyond_own(used) + self._beyond_own(used + more) - self._shared

    def _beyond_own(self, used: int) -> int:
        return max(0, used - self._own)


Tenant = TypeVar("Tenant", bound=Hashable)


class Claims(Generic[Tenant]):
    """Tenants that lately found too little left of what nobody can take back from those who have it, although they have
    less than their share. What becomes free is theirs for some seconds: nobody else goes beyond its share."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: OrderedDict[Tenant, float] = OrderedDict()

    @property
    def tenants(self) -> Mapping[Tenant, float]:
        """Who has a claim now, and since when."""
        while self._claims and next(iter(self._claims.values())) < self._clock() - _CLAIM_SECONDS:
            self._claims.popitem(last=False)
        return self._claims

    def note(self, tenant: Tenant) -> None:
        """A tenant has found too little."""
        self._claims[tenant] = self._clock()
        self._claims.move_to_end(tenant)
        if len(self._claims) > _MOST_CLAIMS:
            self._claims.popitem(last=False)

    def of_others(self, tenant: Tenant) -> bool:
        """Whether anybody else has a claim."""
        tenants = self.tenants
        return len(tenants) > (tenant in tenants)


def caps_by_tenant(known: Mapping[str, TenantCaps]) -> Mapping[str, TenantCaps]:
    """The caps of each tenant that is named: those that its own entry does not set are those of every tenant."""
    common = known.get(EVERY_TENANT, NO_CAPS)
    return {tenant: _completed(caps, common) for tenant, caps in known.items()}


def _completed(caps: TenantCaps, common: TenantCaps) -> TenantCaps:
    names = [field.name for field in fields(TenantCaps)]
    own = {name: getattr(caps, name) for name in names}
    return TenantCaps(**{name: getattr(common, name) if value is None else value for name, value in own.items()})
