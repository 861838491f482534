# SPDX-License-Identifier: Apache-2.0
"""Space of each tenant in the store, and how much space a tenant may use while other tenants need space."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from updraft.errors import LimitError, PoolFullError
from updraft.service.tenants import Caps, Claims

# Longest name of a tenant for which operators can set caps.
_MOST_NAME_CHARACTERS = 253
# If a tenant has had no exchange for longer than this, any other tenant may evict its artifacts.
_AWAY_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class TenantRoom:
    """Space of one tenant in the store."""

    name: str
    used_bytes: int = 0
    idle_bytes: int = 0
    """Space of artifacts and file sets that no exchange holds."""
    owners: int = 0
    exchanges: int = 0
    """Number of exchanges that hold artifacts of this tenant."""
    idle_sets: int = 0
    last_use_seconds: float = 0.0

    @property
    def held_bytes(self) -> int:
        """Space that becomes free only when exchanges end."""
        return self.used_bytes - self.idle_bytes


class TenantRooms:
    """Space of all tenants that have anything in the store.

    Any tenant may fill the store as long as no other tenant needs space. After the store has refused a tenant, other
    tenants may not exceed their share until the refused tenant has had time to retry. A tenant above its share may not
    evict artifacts of active tenants that use less space.
    """

    def __init__(
        self, limit_bytes: int, caps: Caps, retry_after_milliseconds: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_bytes = limit_bytes
        self._caps = caps
        self._retry_after_milliseconds = retry_after_milliseconds
        self._clock = clock
        self._rooms: dict[bytes, TenantRoom] = {}
        self._claims: Claims[bytes] = Claims(clock)

    def __getitem__(self, tenant: bytes) -> TenantRoom:
        return self._rooms[tenant]

    def enter(self, tenant: bytes, name: str) -> TenantRoom:
        """Count one more owner of a tenant and return the tenant's space."""
        name = name if len(name) <= _MOST_NAME_CHARACTERS else ""
        room = self._rooms.setdefault(tenant, TenantRoom(name))
        room.owners += 1
        return room

    def leave(self, tenant: bytes) -> None:
        """Forget one owner of a tenant. If it was the last owner, forget the tenant too."""
        room = self._rooms[tenant]
        room.owners -= 1
        if not room.owners:
            del self._rooms[tenant]

    def use(self, tenant: bytes, change: int) -> None:
        """Count an exchange that begins to use a tenant's artifacts (+1) or ends (-1)."""
        room = self._rooms[tenant]
        room.exchanges += change
        room.last_use_seconds = self._clock()

    def check_cap(self, tenant: bytes, name: str, lacking_bytes: int, announced_bytes: int) -> None:
        """Raise LimitError if the announced bytes exceed a tenant's cap, PoolFullError if they exceed it only now."""
        if self._caps.exceeded("max_artifact_bytes", name, 0, announced_bytes):
            raise LimitError(self._caps.refusal("max_artifact_bytes", name, 0, announced_bytes))
        room = self._rooms.get(tenant)
        held_bytes = room.held_bytes if room is not None else 0
        if self._caps.exceeded("max_artifact_bytes", name, held_bytes, lacking_bytes):
            raise self._full(self._caps.refusal("max_artifact_bytes", name, held_bytes, lacking_bytes))

    def is_beyond_cap(self, tenant: bytes, more_bytes: int) -> bool:
        """Return whether the tenant's cap requires it to evict its own artifacts before it takes `more_bytes`."""
        room = self._rooms[tenant]
        return self._caps.exceeded("max_artifact_bytes", room.name, room.used_bytes, more_bytes)

    def check_share(self, tenant: bytes, more_bytes: int) -> None:
        """Raise PoolFullError if a tenant would exceed its share while other tenants need space."""
        if more_bytes and self._claims.of_others(tenant) and not self._is_within_share(tenant, more_bytes):
            raise self._full(
                f"other tenants wait for room in the store of artifacts, of which this one holds "
                f"{self._held_bytes(tenant)} bytes: retry later, or raise --artifact-store-bytes"
            )

    def may_evict(self, tenant: bytes, more_bytes: int, victim: bytes) -> bool:
        """Return whether a tenant may take `more_bytes` by evicting idle artifacts of the tenant `victim`."""
        other = self._rooms[victim]
        if victim == tenant or self._is_within_share(tenant, more_bytes):
            return True
        return self._is_away(other) or other.used_bytes > self._held_bytes(tenant) + more_bytes

    def refused(self, tenant: bytes, more_bytes: int) -> None:
        """Record a refusal. If the tenant was within its share, other tenants may not exceed theirs for a while."""
        if self._held_bytes(tenant) + more_bytes <= self._share_bytes(tenant):
            self._claims.note(tenant)

    def _is_within_share(self, tenant: bytes, more_bytes: int) -> bool:
        held_bytes = self._held_bytes(tenant)
        # A tenant that holds nothing is always within its share, because one exchange may need more than any share.
        return not held_bytes or held_bytes + more_bytes <= self._share_bytes(tenant)

    def _share_bytes(self, tenant: bytes) -> int:
        """Return the share of one active tenant. Inactive tenants do not count: a pool remembers thousands of them."""
        present = {name for name, room in self._rooms.items() if not self._is_away(room)}
        return self._limit_bytes // len(present | self._claims.tenants.keys() | {tenant})

    def _is_away(self, room: TenantRoom) -> bool:
        return not room.exchanges and self._clock() - room.last_use_seconds > _AWAY_SECONDS

    def _held_bytes(self, tenant: bytes) -> int:
        room = self._rooms.get(tenant)
        return room.held_bytes if room is not None else 0

    def _full(self, reason: str) -> PoolFullError:
        return PoolFullError(reason, retry_after_milliseconds=self._retry_after_milliseconds)
