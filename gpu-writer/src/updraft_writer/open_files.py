# SPDX-License-Identifier: Apache-2.0
"""Open files of a writer, and the choice of files whose partial row groups are flushed when the quota runs short."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from updraft.errors import PoolUnavailableError, QuotaError, UpdraftError
from updraft.service.tenants import Claims, Reserve, own_room
from updraft_writer.open_file import OpenFile
from updraft_writer.quota import Quota
from updraft_writer.row_groups import row_group_target_bytes, stripe_target_bytes, to_flush

_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class Place:
    """Permission of a tenant to have one file open.

    `stripe_bytes` is the memory that the file's encoder may retain. Flushing the file does not release this memory.
    `gives_way` is set to true when the file has to end; its place becomes free soon after.
    """

    tenant: str = ""
    stripe_bytes: int = 0
    gives_way: bool = False


class OpenFiles:
    """Open files of one writer.

    When the quota runs short, `leave_device` takes GPU memory back from files that hold it without encoding.
    """

    def __init__(
        self,
        quota: Quota,
        *,
        max_open_files: int,
        leave_device: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quota = quota
        self._max_open_files = max_open_files
        self._leave_device = leave_device
        # Open files in the order in which they were opened: of equally large row groups, the oldest is flushed first.
        self._files: dict[OpenFile, None] = {}
        self._places: set[Place] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._refusal: UpdraftError | None = None
        self._warned_of_files = 0
        self._reserve = Reserve(max_open_files, own_room(max_open_files))
        self._claims: Claims[str] = Claims(clock)
        quota.on_shortage = self._relieve
        quota.on_cap = self._relieve_tenant

    def __len__(self) -> int:
        """Return the number of files that are open or still being cleaned up."""
        return len(self._places)

    @contextmanager
    def place(self, tenant: str = "") -> Iterator[Place]:
        """Hold a place for one more file; raises QuotaError and PoolUnavailableError.

        The caller must keep the place until the file holds nothing.
        """
        self.check_open()
        self._check_room(tenant)
        place = Place(tenant)
        self._places.add(place)
        self._reserve.count(tenant, +1)
        self._empty.clear()
        try:
            yield place
        finally:
            self._places.remove(place)
            self._reserve.count(tenant, -1)
            if not self._places:
                self._empty.set()

    def check_full(self) -> None:
        """Raise QuotaError if the writer has its maximum number of open files."""
        if len(self) >= self._max_open_files:
            raise self._full(
                f"{len(self)} files are open, the maximum of this writer: retry later, or raise --max-open-files"
            )

    def _check_room(self, tenant: str) -> None:
        """Raise QuotaError if a tenant may not open one more file."""
        caps, own = self._quota.caps, self._reserve.used[tenant]
        if caps.exceeded("max_files", tenant, own, 1):
            raise self._full(caps.refusal("max_files", tenant, own, 1))
        is_within_share = own + 1 <= self._share(tenant)
        if len(self) >= self._max_open_files and is_within_share:
            self._claims.note(tenant)
        self.check_full()
        if self._reserve.missing(tenant, 1) > 0:
            if is_within_share:
                self._claims.note(tenant)
            raise self._full(
                f"the tenant {tenant!r} has {own} of {len(self)} open files, and the rest of this writer's "
                f"{self._max_open_files} are kept for tenants that have few: retry later, or raise --max-open-files"
            )
        if not is_within_share and self._claims.of_others(tenant):
            raise self._full(
                f"the tenant {tenant!r} has {own} of {len(self)} open files, and other tenants wait for theirs: retry "
                "later, or raise --max-open-files"
            )

    def _share(self, tenant: str) -> int:
        """Return the number of files that a tenant may have open if every tenant wants as many as possible."""
        tenants = len(self._reserve.used.keys() | self._claims.tenants.keys() | {tenant})
        return max(1, self._max_open_files // tenants)

    def must_give_way(self, place: Place) -> bool:
        """Return whether this place's idle file has to end. If it has to, treat the place as free from now on.

        The file has to end if its tenant has more than its share of the files, and the writer has refused files of
        tenants below their share. Only as many files have to end as are needed to give each of these tenants one place.
        """
        tenant = place.tenant
        leaving = sum(other.gives_way for other in self._places if other.tenant == tenant)
        if self._reserve.used[tenant] - leaving <= self._share(tenant):
            return False
        waiting = [other for other in self._claims.tenants if self._reserve.used[other] < self._share(other)]
        missing = [self._reserve.missing(other, 1) for other in waiting if other != tenant]
        short = max(len(self) - self._max_open_files + 1, *missing) + len(missing) - 1 if missing else 0
        place.gives_way = short > sum(other.gives_way for other in self._places)
        return place.gives_way

    def _full(self, reason: str) -> QuotaError:
        return QuotaError(reason, retry_after_milliseconds=self._quota.limits.retry_after_milliseconds)

    async def closed(self) -> None:
        """Wait until no file is open or being cleaned up."""
        await self._empty.wait()

    def check_open(self) -> None:
        """Raise PoolUnavailableError if the writer drains. This does not check whether the writer is full."""
        if self._refusal is not None:
            raise self._refusal

    def add(self, file: OpenFile) -> None:
        """Register a file, so that its partial row group can be flushed when the quota runs short."""
        self._files[file] = None

    def remove(self, file: OpenFile) -> None:
        """Remove a file from the open files."""
        self._files.pop(file, None)

    def refuse(self) -> None:
        """Refuse new files from now on. Clients can use another writer."""
        self._refusal = PoolUnavailableError("the writer is draining and opens no new files: use another one")

    def fail_all(self, error: UpdraftError) -> None:
        """End every file with an error, except files that are being published."""
        for file in self._files:
            file.interrupt(error)

    def grant_stripe(self, place: Place, wanted_bytes: int) -> int:
        """Return the bytes granted to the stripes of this place's file. The grant lasts as long as the place."""
        place.stripe_bytes = stripe_target_bytes(
            wanted_bytes,
            quota_bytes=self._quota.limits.quota_bytes,
            max_files=self._max_open_files,
            granted=[other.stripe_bytes for other in self._places if other is not place and other.stripe_bytes],
        )
        return place.stripe_bytes

    def target_bytes(self, wanted_bytes: int) -> int:
        """Return the raw bytes of the next row group of a file that wants `wanted_bytes`."""
        quota_bytes = self._quota.limits.quota_bytes
        target = row_group_target_bytes(wanted_bytes, quota_bytes=quota_bytes, open_files=len(self._files))
        if target < wanted_bytes and len(self._files) > self._warned_of_files:
            # Log this again only when twice as many files are open as at the last time.
            self._warned_of_files = 2 * len(self._files)
            _log.warning(
                "row groups are smaller than requested: the quota is below 4 x open files x the requested row group",
                open_files=len(self._files),
                wanted_bytes=wanted_bytes,
                row_group_bytes=target,
                quota_bytes=quota_bytes,
            )
        return target

    def _relieve(self, missing_bytes: int) -> None:
        self._leave_device()
        self._flush(self._files, missing_bytes)

    def _relieve_tenant(self, tenant: str, missing_bytes: int) -> None:
        self._flush([file for file in self._files if file.retained.tenant == tenant], missing_bytes)

    @staticmethod
    def _flush(files: Collection[OpenFile], missing_bytes: int) -> None:
        moving_bytes = sum(file.moving_bytes for file in files)
        for file in to_flush(files, missing_bytes=missing_bytes - moving_bytes):
            file.flush()
