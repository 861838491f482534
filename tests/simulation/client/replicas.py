# SPDX-License-Identifier: Apache-2.0
"""Model of `Replicas`, which chooses between the pods behind one name."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Departure(enum.Enum):
    """Reason why a call leaves its pod, in order of increasing weight."""

    BUSY = 1
    LOST = 2
    UNAVAILABLE = 3

    @property
    def weight(self) -> int:
        return int(self.value)

    @property
    def avoided_nanos(self) -> int:
        """Time for which other calls avoid the pod."""
        return 1_000_000_000 if self is Departure.BUSY else 10_000_000_000


@dataclass(eq=False, slots=True)
class _Pod:
    address: int
    last_use: int
    calls: int = 0
    avoided_for: Departure | None = None
    avoided_until_nanos: int = 0

    def is_avoided(self, now_nanos: int) -> bool:
        return self.avoided_for is not None and self.avoided_until_nanos > now_nanos

    def avoid(self, why: Departure, now_nanos: int) -> None:
        until_nanos = now_nanos + why.avoided_nanos
        is_avoided = self.is_avoided(now_nanos)
        if self.avoided_for is None or not is_avoided or why.weight > self.avoided_for.weight:
            self.avoided_for = why
        if not is_avoided or until_nanos > self.avoided_until_nanos:
            self.avoided_until_nanos = until_nanos

    def rank(self, now_nanos: int) -> tuple[int, int, int]:
        avoidance = self.avoided_for.weight if self.avoided_for is not None and self.is_avoided(now_nanos) else 0
        return avoidance, self.calls, self.last_use


@dataclass(eq=False, slots=True)
class _Stay:
    """Pod that serves all calls of a task while the task has open calls."""

    pod: _Pod | None = None
    calls: int = 0
    is_over: bool = False


class Replicas:
    """Pods behind one name, as one executor sees them."""

    def __init__(self, first_use: Callable[[], int]) -> None:
        """Create an empty set of pods; `first_use` returns a random negative number."""
        self._first_use = first_use
        self._pods: dict[int, _Pod] = {}
        self._stays: dict[str, _Stay] = {}
        self._uses = 0

    def choose(self, addresses: Sequence[int], task: str | None, now_nanos: int) -> Place:
        """Return a place for one more call."""
        for address in [address for address, pod in self._pods.items() if not pod.calls and address not in addresses]:
            del self._pods[address]
        stay = _Stay() if task is None else self._stays.setdefault(task, _Stay())
        is_alone = not stay.calls
        if stay.pod is None or is_alone or stay.is_over:
            ranks = [pod.last_use for pod in self._pods.values()]
            for address in addresses:
                if address not in self._pods:
                    self._pods[address] = _Pod(address, self._rank_among(ranks))
            stay.pod = min((self._pods[address] for address in addresses), key=lambda pod: pod.rank(now_nanos))
            stay.is_over = False
        stay.calls += 1
        stay.pod.calls += 1
        self._uses += 2
        stay.pod.last_use = self._uses
        has_alternatives = is_alone and self._has_alternative(stay.pod, addresses, now_nanos)
        return Place(self, stay.pod, stay, task, has_alternatives)

    def _has_alternative(self, chosen: _Pod, addresses: Sequence[int], now_nanos: int) -> bool:
        pods = [self._pods[address] for address in addresses]
        return any(pod is not chosen and not pod.is_avoided(now_nanos) for pod in pods)

    def _rank_among(self, ranks: Sequence[int]) -> int:
        """Return the rank of a pod that was just found: next to a random known pod."""
        rank = self._first_use()
        return ranks[rank % len(ranks)] - 1 if ranks else rank

    def _release(self, pod: _Pod, stay: _Stay, task: str | None) -> None:
        pod.calls -= 1
        if not stay.calls and task is not None and self._stays.get(task) is stay:
            del self._stays[task]


class Place:
    """Place of one call at a pod."""

    def __init__(self, replicas: Replicas, pod: _Pod, stay: _Stay, task: str | None, has_alternatives: bool) -> None:
        self.address = pod.address
        self.has_alternatives = has_alternatives
        """Whether another pod exists that has not recently lost or refused a call."""
        self._replicas, self._pod, self._stay, self._task = replicas, pod, stay, task
        self._has_ended = False

    def record_departure(self, why: Departure, now_nanos: int) -> None:
        """Record why the call leaves the pod."""
        self._pod.avoid(why, now_nanos)
        self._stay.is_over |= why is Departure.UNAVAILABLE and self._stay.pod is self._pod

    def ended(self) -> None:
        """Record that the call is over, before another call may replace it."""
        if not self._has_ended:
            self._has_ended = True
            self._stay.calls -= 1

    def release(self) -> None:
        """Release the place; call this once."""
        self.ended()
        self._replicas._release(self._pod, self._stay, self._task)
