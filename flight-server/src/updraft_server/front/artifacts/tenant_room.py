# SPDX-License-Identifier: Apache-2.0
"""What each tenant has in the store, and what it may take without taking it from others."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from updraft.errors import LimitError, PoolFullError
from updraft.service.tenants import Caps, Claims

# Longer names are those of no tenant that an operator has set caps for.
_MOST_NAME_CHARACTERS = 253
# The artifacts of a tenant that has been away for longer are anybody's room.
_AWAY_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class TenantRoom:
    """What one tenant has in the store."""

    name: str
    used_bytes: int = 0
    idle_bytes: int = 0
    """Of artifacts that no exchange holds."""
    owners: int = 0
    exchanges: int = 0
    """That are under way with artifacts of this tenant."""
    idle_sets: int = 0
    last_use_seconds: float = 0.0

    @property
    def held_bytes(self) -> int:
        """Room that it would give back only when exchanges end."""
        return self.used_bytes - self.idle_bytes


class TenantRooms:
    """The tenants that have anything in the store.

    Any of them may fill it as long as nobody else needs it. Once another was refused, those that have more than their
    share get no more, and none of them evicts what others use that have less.
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
        """The room of a tenant that comes with another owner."""
        name = name if len(name) <= _MOST_NAME_CHARACTERS else ""
        room = self._rooms.setdefault(tenant, TenantRoom(name))
        room.owners += 1
        return room

    def leave(self, tenant: bytes) -> None:
        """One of its owners is forgotten."""
        room = self._rooms[tenant]
        room.owners -= 1
        if not room.owners:
            del self._rooms[tenant]

    def use(self, tenant: bytes, change: int) -> None:
        """An exchange begins to use its artifacts, or ends."""
        room = self._rooms[tenant]
        room.exchanges += change
        room.last_use_seconds = self._clock()

    def check_cap(self, tenant: bytes, name: str, lacking_bytes: int, announced_bytes: int) -> None:
        """Raise LimitError for artifacts that a tenant can never have, PoolFullError for more than it may have now."""
        if self._caps.exceeded("max_artifact_bytes", name, 0, announced_bytes):
            raise LimitError(self._caps.refusal("max_artifact_bytes", name, 0, announced_bytes))
        room = self._rooms.get(tenant)
        held_bytes = room.held_bytes if room is not None else 0
        if self._caps.exceeded("max_artifact_bytes", name, held_bytes, lacking_bytes):
            raise self._full(self._caps.refusal("max_artifact_bytes", name, held_bytes, lacking_bytes))

    def is_beyond_cap(self, tenant: bytes, more_bytes: int) -> bool:
        """Whether a tenant has to make room for that much among its own."""
        room = self._rooms[tenant]
        return self._caps.exceeded("max_artifact_bytes", room.name, room.used_bytes, more_bytes)

    def check_share(self, tenant: bytes, more_bytes: int) -> None:
        """Raise PoolFullError for a tenant that would go beyond its share while others need room."""
        if more_bytes and self._claims.of_others(tenant) and not self._is_within_share(tenant, more_bytes):
            raise self._full(
                f"other tenants wait for room in the store of artifacts, of which this one holds "
                f"{self._held_bytes(tenant)} bytes: retry later, or raise --artifact-store-bytes"
            )

    def may_evict(self, tenant: bytes, more_bytes: int, victim: bytes) -> bool:
        """Whether a tenant may have that much more at the cost of another's artifacts, which nothing holds."""
        other = self._rooms[victim]
        if victim == tenant or self._is_within_share(tenant, more_bytes):
            return True
        return self._is_away(other) or other.used_bytes > self._held_bytes(tenant) + more_bytes

    def refused(self, tenant: bytes, more_bytes: int) -> None:
        """There is too little room for a tenant: those that have more than their share wait until it has come again."""
        if self._held_bytes(tenant) + more_bytes <= self._share_bytes(tenant):
            self._claims.note(tenant)

    def _is_within_share(self, tenant: bytes, more_bytes: int) -> bool:
        held_bytes = self._held_bytes(tenant)
        # What one needs at a time may be more than any share.
        return not held_bytes or held_bytes + more_bytes <= self._share_bytes(tenant)

    def _share_bytes(self, tenant: bytes) -> int:
        """Of the tenants that are there: a pool remembers thousands that have ended long ago."""
        present = {name for name, room in self._rooms.items() if not self._is_away(room)}
        return self._limit_bytes // len(present | self._claims.tenants.keys() | {tenant})

    def _is_away(self, room: TenantRoom) -> bool:
        return not room.exchanges and self._clock() - room.last_use_seconds > _AWAY_SECONDS

    def _held_bytes(self, tenant: bytes) -> int:
        room = self._rooms.get(tenant)
        return room.held_bytes if room is not None else 0

    def _full(self, reason: str) -> PoolFullError:
        return PoolFullError(reason, retry_after_milliseconds=self._retry_after_milliseconds)
