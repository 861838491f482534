# SPDX-License-Identifier: Apache-2.0
"""Quota of bytes that a writer may hold, and the order in which tenants receive bytes.

This is pure policy, without transport or threads. Only `Quota.acquire` waits. A reservation can grow and shrink without
waiting, so held bytes are always released in the end. The quota serves tenants that hold less than their share first,
and other waiters in the order of their arrival. If the first waiter's batch does not fit, later waiters may overtake
the first waiter, but only for a bounded time. After that time, all later waiters have to wait too, unless their batch
fits into their tenant's own part of the reserve (`updraft.service.tenants.Reserve`). While a tenant below its share
waits, other tenants may not keep credit unused (`Quota.is_owed_to_others`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from updraft.errors import QuotaError
from updraft.service.tenants import Caps, Reserve

# If a batch does not fit, smaller batches may overtake it for this long, so that they can use free bytes. In this time,
# a file usually stores a row group and releases its bytes.
BYPASS_SECONDS = 5.0
# Longest wait of a batch. If no room has become free for a minute, the storage is slow or down, and another writer may
# store the file sooner. The task's own timeouts are longer.
ADMISSION_TIMEOUT_SECONDS = 60.0
# Retry hint for refused clients: about the time that a writer needs to store a file of a few MiB.
RETRY_AFTER_MILLISECONDS = 1000

# Terms of the default quota. They leave room for unused parts of the allocators' pages, and for memory that the kernel
# uses for this process, because the memory limit includes both.
_USABLE_FRACTION = 0.6
_LARGEST_FRACTION = 0.5
_SMALLEST_QUOTA_BYTES = 64 << 20
_RUNTIME_RESERVE_BYTES = 256 << 20
# Memory of an open stream in addition to its batches: gRPC's buffers, an encoder, a stream to the storage. This is more
# than the 12 MiB that a batch of 4 MiB occupies while it is received, because gRPC, Python and Arrow each keep the
# batch in a buffer.
STREAM_BYTES = 20 << 20
# Number of open files for which the default quota leaves memory. A pod writes for some executors with a few tasks each,
# and each task has one file open at a time. The quota does not include the memory of further open files.
# `--max-open-files` limits the number of open files.
_EXPECTED_OPEN_FILES = 16


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Limits of a quota.

    `quota_bytes` is the ceiling. `own_bytes` is the part that each of ten tenants has for itself. `bypass_seconds` is
    the time for which a waiter may be overtaken. `timeout_seconds` is the longest wait.
    """

    quota_bytes: int
    own_bytes: int = 0
    bypass_seconds: float = BYPASS_SECONDS
    timeout_seconds: float = field(default_factory=lambda: ADMISSION_TIMEOUT_SECONDS)
    retry_after_milliseconds: int = RETRY_AFTER_MILLISECONDS


class Reservation:
    """Bytes held from a quota.

    As a context manager, a reservation releases its bytes at the end. Releasing twice has no effect.
    """

    def __init__(self, quota: "Quota", tenant: str, held_bytes: int, *, admitted: bool) -> None:
        self.tenant = tenant
        self.admitted = admitted
        self._quota: Quota | None = quota
        self._held_bytes = held_bytes
        quota._remember(self)
        quota._count(self, held_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes held now; 0 once released."""
        return self._held_bytes

    def resize(self, held_bytes: int) -> None:
        """Hold more or fewer bytes, without waiting. A released reservation stays empty."""
        if self._quota is not None:
            change, self._held_bytes = held_bytes - self._held_bytes, held_bytes
            self._quota._change(self, change)

    def absorb(self, other: "Reservation") -> None:
        """Take over all bytes of `other` in one step, so that no waiter is admitted in between.

        Both reservations must belong to the same tenant.
        """
        if self._quota is None or other._quota is None:
            other.release()
            return
        self._quota._forget(self)
        self._quota._forget(other)
        self.admitted = self.admitted or other.admitted
        self._held_bytes += other._held_bytes
        other._quota, other._held_bytes = None, 0
        self._quota._remember(self)

    def hand_over(self, other: "Reservation", handed_bytes: int) -> None:
        """Move up to `handed_bytes` to `other` in one step, so that no waiter is admitted in between.

        Both reservations must belong to the same tenant. A negative number moves bytes from `other` to this
        reservation.
        """
        handed_bytes = min(handed_bytes, self._held_bytes)
        if self._quota is not None and other._quota is not None:
            self._held_bytes -= handed_bytes
            other._held_bytes += handed_bytes

    def sibling(self) -> "Reservation":
        """Return an empty reservation of the same tenant, from the same quota; raises ValueError once released."""
        if self._quota is None:
            raise ValueError("a released reservation has no quota to hold from")
        return self._quota.charge(self.tenant)

    def release(self) -> None:
        """Release all bytes."""
        if self._quota is not None:
            quota, self._quota = self._quota, None
            change, self._held_bytes = -self._held_bytes, 0
            quota._forget(self)
            quota._change(self, change)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


@dataclass(eq=False, slots=True)
class _Waiter:
    tenant: str
    wanted_bytes: int
    arrived: float
    granted: asyncio.Future[Reservation] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Quota:
    """Ceiling in bytes on everything that a writer holds for its files.

    The quota calls `on_shortage(missing_bytes)` when a caller waits and the held bytes have changed. This callback
    should make holders release bytes that would otherwise stay, such as partial row groups. The quota calls
    `on_cap(tenant, missing_bytes)` when a tenant waits because of its own cap. This callback should make that tenant's
    holders release bytes. The quota calls `on_growth()` when the held bytes have grown.
    """

    def __init__(
        self, limits: QuotaLimits, *, caps: Caps | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self.caps = caps or Caps()
        self.on_shortage: Callable[[int], None] = lambda _missing_bytes: None
        self.on_cap: Callable[[str, int], None] = lambda _tenant, _missing_bytes: None
        self.on_growth: Callable[[], None] = lambda: None
        self.held_bytes = 0
        self.peak_bytes = 0
        self._clock = clock
        self._reserve = Reserve(limits.quota_bytes, limits.own_bytes)
        self.reservations = 0
        """Number of unreleased reservations."""
        self._admitted: Counter[str] = Counter()
        """Number of unreleased reservations that `acquire` has granted to each tenant."""
        self._waiters: list[_Waiter] = []

    @property
    def waiting(self) -> int:
        """Number of callers that wait in `acquire`."""
        return len(self._waiters)

    async def acquire(self, tenant: str, wanted_bytes: int) -> Reservation:
        """Reserve bytes for one batch, in turn; raises QuotaError if the bytes are not free in time.

        A batch larger than the whole quota is admitted alone, so the caller has to bound the size of batches. A
        cancelled caller leaves the queue and holds nothing.
        """
        waiter = _Waiter(tenant, wanted_bytes, self._clock())
        self._waiters.append(waiter)
        self._dispatch()
        try:
            async with asyncio.timeout(self.limits.timeout_seconds):
                return await waiter.granted
        except (TimeoutError, asyncio.CancelledError) as error:
            if waiter.granted.done() and not waiter.granted.cancelled():
                waiter.granted.result().release()
            if isinstance(error, TimeoutError):
                raise self._refusal(waiter) from None
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                # This waiter has left the queue, so waiters behind it may fit now.
                self._dispatch()

    def charge(self, tenant: str) -> Reservation:
        """Return an empty reservation, which can grow without waiting, for bytes such as those that a file retains."""
        return Reservation(self, tenant, 0, admitted=False)

    def check_room(self, tenant: str, wanted_bytes: int, what: str) -> None:
        """Raise QuotaError unless `wanted_bytes` are free for a tenant now.

        Use this check for memory that a file keeps until the file ends. Files must not wait for such memory, because
        they might wait for each other forever.
        """
        if wanted_bytes > 0 and self._missing_bytes(tenant, wanted_bytes) > 0:
            raise QuotaError(
                f"no room for {wanted_bytes} bytes ({what}) until the file ends: {self.held_bytes} of the quota's "
                f"{self.limits.quota_bytes} bytes are held, and the rest may be kept for other tenants; ask for less, "
                "retry later, or give the writer a larger quota",
                retry_after_milliseconds=self.limits.retry_after_milliseconds,
            )

    def tell_shortage(self) -> None:
        """Report a shortage if a caller waits.

        Call this method after taking bytes that are released only if a shortage is reported.
        """
        if queue := self._queue():
            wanted_bytes = min(queue[0].wanted_bytes, self.limits.quota_bytes)
            self.on_shortage(self._missing_bytes(queue[0].tenant, wanted_bytes))
        # For each tenant at its cap, it is enough to report one waiting batch.
        for waiter in {waiter.tenant: waiter for waiter in self._waiters if self._is_capped(waiter)}.values():
            cap_bytes = self.caps.of(waiter.tenant).max_quota_bytes or 0
            self.on_cap(waiter.tenant, self._reserve.used[waiter.tenant] + waiter.wanted_bytes - cap_bytes)

    def is_owed_to_others(self, tenant: str) -> bool:
        """Return whether a tenant has its share while another waits for its first batch or for room in its share."""
        share_bytes = self._share_bytes()
        return self._reserve.used[tenant] >= share_bytes and any(
            waiter.tenant != tenant and self._is_owed(waiter, share_bytes) for waiter in self._waiters
        )

    def _is_owed(self, waiter: _Waiter, share_bytes: float) -> bool:
        has_none = not self._admitted[waiter.tenant]
        is_within_share = self._reserve.used[waiter.tenant] + waiter.wanted_bytes <= share_bytes
        return (has_none or is_within_share) and not self._is_capped(waiter)

    def _refusal(self, waiter: _Waiter) -> QuotaError:
        limits = self.limits
        if self._is_capped(waiter):
            held_bytes = self._reserve.used[waiter.tenant]
            return QuotaError(
                f"no room for a batch in {limits.timeout_seconds:g} seconds: "
                + self.caps.refusal("max_quota_bytes", waiter.tenant, held_bytes, waiter.wanted_bytes),
                retry_after_milliseconds=limits.retry_after_milliseconds,
            )
        return QuotaError(
            f"no room for {waiter.wanted_bytes} bytes (batch and encoding) in {limits.timeout_seconds:g} seconds: "
            f"{self.held_bytes} of the quota's {limits.quota_bytes} bytes are held, and {self.waiting} batches wait; "
            "the storage may be slow: retry later, or give the writer a larger quota",
            retry_after_milliseconds=limits.retry_after_milliseconds,
        )

    def _fits(self, waiter: _Waiter) -> bool:
        # If no admitted batch holds bytes, admit this batch in any case: open files hold all other bytes until the
        # files end, so waiting would not help.
        return not self._admitted or self._missing_bytes(waiter.tenant, waiter.wanted_bytes) <= 0

    def _missing_bytes(self, tenant: str, wanted_bytes: int) -> int:
        """Return how many bytes must be released before a tenant can have `wanted_bytes` more."""
        missing_bytes = self.held_bytes + wanted_bytes - self.limits.quota_bytes
        # The reserve for other tenants does not apply while nothing is held.
        return max(missing_bytes, min(self.held_bytes, self._reserve.missing(tenant, wanted_bytes)))

    def _dispatch(self) -> None:
        while waiter := next(self._candidates(), None):
            self._waiters.remove(waiter)
            if not waiter.granted.done():
                waiter.granted.set_result(Reservation(self, waiter.tenant, waiter.wanted_bytes, admitted=True))
        self.tell_shortage()

    def _candidates(self) -> Iterator[_Waiter]:
        """Return the waiters that may be admitted now, in turn."""
        queue = self._queue()
        if queue and self._clock() - queue[0].arrived > self.limits.bypass_seconds:
            first = queue[0]
            queue = [waiter for waiter in queue if waiter is first or self._is_own(waiter)]
        return (waiter for waiter in queue if self._fits(waiter))

    def _queue(self) -> list[_Waiter]:
        """Return the waiters in turn: tenants below their share first, then by arrival. Omits tenants at their cap."""
        waiters = [waiter for waiter in self._waiters if not self._is_capped(waiter)]
        share_bytes = self._share_bytes()
        return sorted(waiters, key=lambda waiter: self._reserve.used[waiter.tenant] >= share_bytes)

    def _share_bytes(self) -> float:
        tenants = {waiter.tenant for waiter in self._waiters} | self._reserve.used.keys()
        return self.limits.quota_bytes / max(1, len(tenants))

    def _is_own(self, waiter: _Waiter) -> bool:
        return self._reserve.is_own(waiter.tenant, waiter.wanted_bytes)

    def _is_capped(self, waiter: _Waiter) -> bool:
        """Return whether a waiter's tenant is at its cap. A tenant without any admitted batch may always have one."""
        tenant = waiter.tenant
        return bool(self._admitted[tenant]) and self.caps.exceeded(
            "max_quota_bytes", tenant, self._reserve.used[tenant], waiter.wanted_bytes
        )

    def _remember(self, reservation: Reservation) -> None:
        self.reservations += 1
        if reservation.admitted:
            self._admitted[reservation.tenant] += 1

    def _change(self, reservation: Reservation, change: int) -> None:
        self._count(reservation, change)
        if change <= 0:
            self._dispatch()

    def _forget(self, reservation: Reservation) -> None:
        self.reservations -= 1
        if reservation.admitted:
            self._admitted[reservation.tenant] -= 1
            if not self._admitted[reservation.tenant]:
                del self._admitted[reservation.tenant]

    def _count(self, reservation: Reservation, change: int) -> None:
        self.held_bytes += change
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        self._reserve.count(reservation.tenant, change)
        if change > 0:
            self.on_growth()


def default_quota(limits: Mapping[str, int], *, base_bytes: int, pinned_bytes: int = 0) -> dict[str, Any]:
    """Compute the quota: a fraction of the part of the memory limit that the process and its streams do not use.

    The memory limit is the smallest of `limits`. Return the quota as `quota_bytes`, together with every term of the
    computation, which the log shows. `base_bytes` is the memory of the idle process, and `pinned_bytes` is the size of
    the GPU library's pinned pool.
    """
    limited_by = min(limits, key=lambda source: limits[source])
    limit_bytes = limits[limited_by]
    rest_bytes = limit_bytes - base_bytes - pinned_bytes - _RUNTIME_RESERVE_BYTES - _EXPECTED_OPEN_FILES * STREAM_BYTES
    largest_bytes = int(_LARGEST_FRACTION * limit_bytes)
    return {
        "quota_bytes": min(max(int(_USABLE_FRACTION * rest_bytes), _SMALLEST_QUOTA_BYTES), largest_bytes),
        "limit_bytes": limit_bytes,
        "limited_by": limited_by,
        "base_bytes": base_bytes,
        "pinned_bytes": pinned_bytes,
        "streams": _EXPECTED_OPEN_FILES,
        "stream_bytes": STREAM_BYTES,
        "largest_bytes": largest_bytes,
        "runtime_reserve_bytes": _RUNTIME_RESERVE_BYTES,
        "usable_fraction": _USABLE_FRACTION,
        "smallest_bytes": _SMALLEST_QUOTA_BYTES,
    }
