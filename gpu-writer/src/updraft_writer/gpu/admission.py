# SPDX-License-Identifier: Apache-2.0
"""Admission to the GPU by bytes of its memory, first come, first served. Pure policy, without a device or threads.

A row group holds memory for its working set while it is encoded. A file with `hold` keeps that memory between its row
groups, so that its next row group need not queue. The file loses the memory when the quota runs short, or when another
file has waited for `hold_seconds`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from updraft_writer.gpu.costs import Load

# Device memory for encoding a row group, in multiples of its raw bytes. On an H200, with zstd, encoding took up to 6.3
# times the raw bytes. If a row group exceeds the device's memory, the encoder encodes its halves instead.
WORKING_SET_FACTOR = 6.5
# A file keeps its memory between row groups until another file has waited for this long. A task sends its next batches
# in less time. A row group that had to queue behind other files would wait far longer.
_HOLD_SECONDS = 1.0
# Number of steps of different files that must fit into device memory together, even if each step joins several row
# groups. With fewer steps, the device idles.
_STEPS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Device memory, device bytes needed for each raw byte, and how long a file waits before idle files lose memory."""

    memory_bytes: int
    working_set_factor: float = field(default_factory=lambda: WORKING_SET_FACTOR)
    hold_seconds: float = _HOLD_SECONDS

    @property
    def shared_raw_bytes(self) -> int:
        """Most raw bytes of a step that joins row groups: small enough that _STEPS_AT_ONCE such steps fit together."""
        return int(self.memory_bytes / self.working_set_factor / _STEPS_AT_ONCE)

    def working_set_bytes(self, raw_bytes: int) -> int:
        """Return the device bytes needed to encode `raw_bytes`, at most the device's whole memory."""
        return min(self.memory_bytes, int(raw_bytes * self.working_set_factor))


@dataclass(eq=False, slots=True)
class _Waiter:
    wanted_bytes: int
    granted: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class DeviceAdmission:
    """Admission to one device's memory. `may_hold` says whether a file may keep its memory between row groups."""

    def __init__(self, limits: DeviceLimits, *, may_hold: Callable[[], bool] = lambda: True) -> None:
        self.limits = limits
        self.held_bytes = 0
        self._on_cpu = 0
        self._on_gpu = 0
        self._may_hold = may_hold
        self._waiters: deque[_Waiter] = deque()
        self._idle: set[DevicePlace] = set()

    @property
    def waiting(self) -> int:
        """Number of row groups in the queue."""
        return len(self._waiters)

    @property
    def load(self) -> Load:
        """Row groups that the device encodes or that wait for it, and row groups on this writer's CPU."""
        return Load(on_cpu=self._on_cpu, on_gpu=self._on_gpu)

    def place(self, *, hold: bool) -> "DevicePlace":
        """Return a place without memory for one file. With `hold`, the place keeps memory between row groups."""
        return DevicePlace(self, hold=hold)

    def release_idle(self) -> None:
        """Take memory back from files that hold memory without encoding."""
        for place in tuple(self._idle):
            place.release()

    async def _acquire(self, waiter: _Waiter) -> bool:
        """Wait for memory; return False if the file was closed meanwhile. After a cancellation, hold no memory."""
        self._waiters.append(waiter)
        self._dispatch()
        try:
            done, _ = await asyncio.wait({waiter.granted}, timeout=self.limits.hold_seconds)
            if not done:
                self.release_idle()
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.result():
                self._give_back(waiter.wanted_bytes)
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._dispatch()

    def _dispatch(self) -> None:
        while self._waiters and self.held_bytes + self._waiters[0].wanted_bytes <= self.limits.memory_bytes:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():
                self.held_bytes += waiter.wanted_bytes
                waiter.granted.set_result(True)

    def _give_back(self, held_bytes: int) -> None:
        self.held_bytes -= held_bytes
        self._dispatch()


class DevicePlace:
    """Device memory of one file, which encodes one row group at a time."""

    def __init__(self, admission: DeviceAdmission, *, hold: bool) -> None:
        self._admission = admission
        self._hold = hold
        self._held_bytes = 0
        self._waiter: _Waiter | None = None

    @asynccontextmanager
    async def step(self, raw_bytes: int) -> AsyncIterator[None]:
        """Hold memory while a row group of `raw_bytes` is encoded. Closed files neither wait nor hold memory."""
        admission, wanted_bytes = self._admission, self._admission.limits.working_set_bytes(raw_bytes)
        admission._idle.discard(self)
        admission._on_gpu += 1
        try:
            if self._held_bytes < wanted_bytes:
                # Release before waiting. Otherwise two files that hold memory and wait for more could wait for each
                # other.
                self.release()
                self._waiter = _Waiter(wanted_bytes)
                try:
                    self._held_bytes = wanted_bytes if await admission._acquire(self._waiter) else 0
                finally:
                    self._waiter = None
            try:
                yield
            finally:
                if self._hold and admission._may_hold():
                    admission._idle.add(self)
                else:
                    self.release()
        finally:
            admission._on_gpu -= 1

    @contextmanager
    def step_on_cpu(self) -> Iterator[None]:
        """Count a row group that the CPU encodes or will encode."""
        self._admission._on_cpu += 1
        try:
            yield
        finally:
            self._admission._on_cpu -= 1

    def release(self) -> None:
        """Release the held memory."""
        self._admission._idle.discard(self)
        held_bytes, self._held_bytes = self._held_bytes, 0
        self._admission._give_back(held_bytes)

    def close(self) -> None:
        """Stop holding and waiting, because the file has ended or has left the device."""
        self._hold = False
        if self in self._admission._idle:
            self.release()
        if self._waiter is not None and not self._waiter.granted.done():
            self._waiter.granted.set_result(False)
