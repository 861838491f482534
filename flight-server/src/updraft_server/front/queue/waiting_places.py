# SPDX-License-Identifier: Apache-2.0
"""Places of the exchanges that wait in the queue, by tenant and by task, and the memory that they hold."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from updraft_server.front.queue.place import Place
from updraft_server.front.queue.turns import add
from updraft_server.pool.leases import TaskKey


@dataclass(slots=True)
class TenantPlaces:
    """Places of one tenant, the oldest first."""

    places: dict[Place, None] = field(default_factory=dict)
    held_bytes: int = 0


class WaitingPlaces:
    """Places of all waiting exchanges."""

    def __init__(self) -> None:
        self.count = 0
        """Number of places."""
        self.held_bytes = 0
        """Memory that the places hold."""
        self._tenants: dict[str, TenantPlaces] = {}
        self._count_of_tasks: Counter[TaskKey] = Counter()
        self._ready_of_tasks: dict[TaskKey, dict[Place, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def __iter__(self) -> Iterator[Place]:
        for tenant in self._tenants.values():
            yield from tenant.places

    def __contains__(self, place: Place) -> bool:
        tenant = self._tenants.get(place.tenant)
        return tenant is not None and place in tenant.places

    @property
    def tenants(self) -> Mapping[str, TenantPlaces]:
        """Tenants that have places, in order of arrival."""
        return self._tenants

    def of(self, tenant: str) -> TenantPlaces:
        """Return the places of a tenant, possibly without any place."""
        return self._tenants.get(tenant) or TenantPlaces()

    def count_of(self, task: TaskKey | None) -> int:
        """Return the number of places of a task; 0 without a task."""
        return self._count_of_tasks[task] if task is not None else 0

    def ready_of(self, task: TaskKey) -> Collection[Place]:
        """Return the places of a task that are ready for a worker."""
        return self._ready_of_tasks.get(task, {})

    def add(self, place: Place) -> None:
        """Add a place that is not yet ready for a worker."""
        tenant = self._tenants.setdefault(place.tenant, TenantPlaces())
        tenant.places[place] = None
        tenant.held_bytes += place.held_bytes
        self.held_bytes += place.held_bytes
        self.count += 1
        if place.task is not None:
            self._count_of_tasks[place.task] += 1

    def is_ready(self, place: Place) -> None:
        """Record that a place is ready for a worker."""
        if place.task is not None:
            self._ready_of_tasks.setdefault(place.task, {})[place] = None

    def remove(self, place: Place) -> None:
        """Remove a place."""
        tenant = self._tenants[place.tenant]
        del tenant.places[place]
        tenant.held_bytes -= place.held_bytes
        self.held_bytes -= place.held_bytes
        self.count -= 1
        if not tenant.places:
            del self._tenants[place.tenant]
        if place.task is not None:
            add(self._count_of_tasks, place.task, -1)
            ready = self._ready_of_tasks.get(place.task, {})
            ready.pop(place, None)
            if not ready:
                self._ready_of_tasks.pop(place.task, None)
