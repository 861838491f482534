# SPDX-License-Identifier: Apache-2.0
"""Limits on what one tenant may take of a service: the operator's caps with counts of refusals, and shares of room."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from updraft.service.metrics import Metrics

EVERY_TENANT = "*"
"""Name of the entry with the caps of all tenants without caps of their own."""


@dataclass(frozen=True, slots=True)
class TenantCaps:
    """Maximum that one tenant may hold at a time; None sets no cap. The fields are keys of the identities file."""

    max_workers: int | None = None
    """Busy workers. At the cap, an exchange receives a worker only if its task already holds a worker."""
    max_waiting: int | None = None
    """Exchanges that wait for a worker."""
    max_queue_bytes: int | None = None
    """Memory of waiting exchanges, in bytes."""
    max_artifact_bytes: int | None = None
    """Bytes in a pool's artifact store."""
    max_quota_bytes: int | None = None
    """Bytes of a writer's quota, checked when a batch asks for more."""
    max_files: int | None = None
    """Open files of a writer."""


NO_CAPS = TenantCaps()
# How long a claim lasts. Refused tenants retry within this time.
_CLAIM_SECONDS = 10.0
_MOST_CLAIMS = 4096
# Unit of each cap that can lead to a refusal, as the error names it.
_UNITS = {
    "max_waiting": "waiting exchanges",
    "max_queue_bytes": "bytes of waiting exchanges",
    "max_artifact_bytes": "bytes of artifacts that running exchanges need",
    "max_quota_bytes": "bytes of the quota",
    "max_files": "open files",
}


class Caps:
    """Current caps of all tenants, with counts of refusals."""

    def __init__(self, caps_of: Callable[[str], TenantCaps] = lambda _tenant: NO_CAPS) -> None:
        self.of = caps_of
        self.refusals = dict.fromkeys(_UNITS, 0)
        """Number of refusals by cap, for all tenants together."""

    def show_in(self, metrics: Metrics) -> None:
        """Add the counter of refusals."""
        metrics.count_by_label(
            f"{metrics.prefix}_tenant_cap_refusals",
            "Refusals that kept a tenant within its cap, by cap.",
            "cap",
            lambda: self.refusals,
        )

    def exceeded(self, cap: str, tenant: str, used: int, more: int) -> bool:
        """Return whether `more` on top of `used` would exceed the tenant's cap."""
        limit = getattr(self.of(tenant), cap)
        return limit is not None and used + more > limit

    def refusal(self, cap: str, tenant: str, used: int, more: int) -> str:
        """Count a refusal and return its error message."""
        self.refusals[cap] += 1
        limit = getattr(self.of(tenant), cap)
        return (
            f"the tenant {tenant!r} has {used} {_UNITS[cap]} and wants {more} more, its cap is {limit}: retry when "
            f"some of its own work has ended, or raise {cap} of its [[tenant]] in the service's identities file"
        )


RESERVED_TENANTS = 10
"""Number of tenants that a service keeps from starving each other. Each of these tenants has a part of the reserve,
which is an eighth of the service's room. All tenants share the other seven eighths."""
_RESERVE_DIVISOR = 8


def own_room(limit: int) -> int:
    """Return the part of a service's room that each of ten tenants has for itself: an eightieth of the room."""
    return limit // (_RESERVE_DIVISOR * RESERVED_TENANTS)


class Reserve:
    """Room with a part reserved for each of ten tenants. All tenants share the other room; one tenant may use it all.

    While at most nine other tenants hold room, a tenant that stays within its own part always finds that part free.
    `limit` is the whole room and `own` the part of each tenant, in the same unit.
    """

    def __init__(self, limit: int, own: int) -> None:
        self._own = own
        self._shared = limit - RESERVED_TENANTS * own
        self._beyond = 0
        self.used: Counter[str] = Counter()
        """Amount that each tenant holds; `count` changes it."""

    def count(self, tenant: str, change: int) -> None:
        """Change the amount that a tenant holds; `change` may be negative."""
        used = self.used[tenant]
        self._beyond += self._beyond_own(used + change) - self._beyond_own(used)
        self.used[tenant] = used + change
        if not self.used[tenant]:
            del self.used[tenant]

    def is_own(self, tenant: str, more: int) -> bool:
        """Return whether a tenant stays within its own part if it takes `more`."""
        return self.used[tenant] + more <= self._own

    def missing(self, tenant: str, more: int) -> int:
        """Return the shared room that must be freed before a tenant may take `more`; 0 or less if there is enough."""
        if self.is_own(tenant, more):
            return 0
        used = self.used[tenant]
        return self._beyond - self._beyond_own(used) + self._beyond_own(used + more) - self._shared

    def _beyond_own(self, used: int) -> int:
        return max(0, used - self._own)


Tenant = TypeVar("Tenant", bound=Hashable)


class Claims(Generic[Tenant]):
    """Tenants that hold less than their share and recently found too little room left.

    Room that other tenants hold cannot be taken back. Instead, while a claim lasts (ten seconds), no other tenant may
    go beyond its share. So the claimants can take room that becomes free.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: OrderedDict[Tenant, float] = OrderedDict()

    @property
    def tenants(self) -> Mapping[Tenant, float]:
        """Tenants with a claim, each with the clock's time at its latest claim."""
        while self._claims and next(iter(self._claims.values())) < self._clock() - _CLAIM_SECONDS:
            self._claims.popitem(last=False)
        return self._claims

    def note(self, tenant: Tenant) -> None:
        """Record that a tenant found too little room."""
        self._claims[tenant] = self._clock()
        self._claims.move_to_end(tenant)
        if len(self._claims) > _MOST_CLAIMS:
            self._claims.popitem(last=False)

    def of_others(self, tenant: Tenant) -> bool:
        """Return whether another tenant has a claim."""
        tenants = self.tenants
        return len(tenants) > (tenant in tenants)
