# SPDX-License-Identifier: Apache-2.0
"""Admission to the GPU by bytes of its memory, first come, first served. Pure policy, without a device or threads.

A row group takes memory for its working set while it is encoded. A file with `hold` keeps that memory between its row
groups, so that it need not queue again. The file loses the memory when the quota runs short, or when another file has
waited for `hold_seconds`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from updraft_writer.gpu.costs import Load

# Device memory for encoding a row group, in multiples of its raw bytes. On an H200, row groups took up to 6.3 times
# their raw bytes, with zstd. A row group that takes too much is halved and tried again.
WORKING_SET_FACTOR = 6.5
# A file keeps its memory between row groups until another file has waited for this long. This is longer than a task
# needs for its next batches, and short compared with the time that another file's row group would wait in a queue.
_HOLD_SECONDS = 1.0
# Steps of different files that must fit into device memory at once even if each step joins several row groups. With
# fewer steps, the device idles.
_STEPS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Device memory, device bytes needed for each raw byte, and how long a file waits before idle files lose memory."""

    memory_bytes: int
    working_set_factor: float = field(default_factory=lambda: WORKING_SET_FACTOR)
    hold_seconds: float = _HOLD_SECONDS

    @property
    def shared_raw_bytes(self) -> int:
        """Most raw bytes of a step that joins row groups: so small that _STEPS_AT_ONCE such steps fit at once."""
        return int(self.memory_bytes / self.working_set_factor / _STEPS_AT_ONCE)

    def working_set_bytes(self, raw_bytes: int) -> int:
        """Return the device bytes needed to encode `raw_bytes`, at most the device's whole memory."""
        return min(self.memory_bytes, int(raw_bytes * self.working_set_factor))


@dataclass(eq=False, slots=True)
class _Waiter:
    wanted_bytes: int
    granted: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class DeviceAdmission:
    """Memory of one device. `may_hold` says whether a file may keep its memory between row groups."""

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
        """Row groups that run or wait on the device, and those on this writer's CPU."""
        return Load(on_cpu=self._on_cpu, on_gpu=self._on_gpu)

    def place(self, *, hold: bool) -> "DevicePlace":
        """Return a place without memory for one file. With `hold`, the place keeps memory between row groups."""
        return DevicePlace(self, hold=hold)

    def release_idle(self) -> None:
        """Take memory back from files that hold it without encoding."""
        for place in tuple(self._idle):
            place.release()

    async def _acquire(self, waiter: _Waiter) -> bool:
        """Wait for memory; return False if the file was closed meanwhile. A cancelled caller holds nothing."""
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
        """Hold memory while a row group of `raw_bytes` is encoded. A closed file starts at once, without memory."""
        admission, wanted_bytes = self._admission, self._admission.limits.working_set_bytes(raw_bytes)
        admission._idle.discard(self)
        admission._on_gpu += 1
        try:
            if self._held_bytes < wanted_bytes:
                # Release first. Otherwise two files that hold memory and wait for more could wait for each other.
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
