# SPDX-License-Identifier: Apache-2.0
"""All open files, and which of them must flush its partial row group when the quota runs short."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from updraft.errors import PoolUnavailableError, QuotaError, UpdraftError
from updraft_writer.open_file import OpenFile
from updraft_writer.quota import Quota
from updraft_writer.row_groups import row_group_target_bytes, stripe_target_bytes, to_flush

_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class Place:
    """Permission to have one file open. `stripe_bytes` is what its encoder may retain that no flush releases."""

    stripe_bytes: int = 0


class OpenFiles:
    """The open files of one writer.

    `leave_device` takes the GPU from files that hold a place on it without using it, when others need it.
    """

    def __init__(
        self,
        quota: Quota,
        *,
        max_open_files: int,
        leave_device: Callable[[], None] = lambda: None,
    ) -> None:
        self._quota = quota
        self._max_open_files = max_open_files
        self._leave_device = leave_device
        self._files: set[OpenFile] = set()
        self._places: set[Place] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._refusal: UpdraftError | None = None
        self._warned_of_files = 0
        quota.on_shortage = self._relieve

    def __len__(self) -> int:
        """Number of files that are open or still being cleaned up."""
        return len(self._places)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A place for one more file, kept until the file holds nothing; raises QuotaError and PoolUnavailableError."""
        self.check_open()
        if len(self) >= self._max_open_files:
            raise QuotaError(
                f"{len(self)} files are open, the maximum of this writer: retry later, or raise --max-open-files",
                retry_after_milliseconds=self._quota.limits.retry_after_milliseconds,
            )
        place = Place()
        self._places.add(place)
        self._empty.clear()
        try:
            yield place
        finally:
            self._places.remove(place)
            if not self._places:
                self._empty.set()

    async def closed(self) -> None:
        """Return once no file is open or being cleaned up."""
        await self._empty.wait()

    def check_open(self) -> None:
        """Raise PoolUnavailableError if the writer drains. A writer that is merely full raises nothing here."""
        if self._refusal is not None:
            raise self._refusal

    def add(self, file: OpenFile) -> None:
        """Let a shortage of quota flush this file's partial row group too."""
        self._files.add(file)

    def remove(self, file: OpenFile) -> None:
        """Forget a file."""
        self._files.discard(file)

    def refuse(self) -> None:
        """Open no more files; clients can go to another writer."""
        self._refusal = PoolUnavailableError("the writer is draining and opens no new files: use another one")

    def fail_all(self, error: UpdraftError) -> None:
        """End every file that is not being published with an error."""
        for file in self._files:
            file.interrupt(error)

    def grant_stripe(self, place: Place, wanted_bytes: int) -> int:
        """Bytes that the stripes of this place's file may take. The grant lasts as long as the place."""
        place.stripe_bytes = stripe_target_bytes(
            wanted_bytes,
            quota_bytes=self._quota.limits.quota_bytes,
            max_files=self._max_open_files,
            granted=[other.stripe_bytes for other in self._places if other is not place and other.stripe_bytes],
        )
        return place.stripe_bytes

    def target_bytes(self, wanted_bytes: int) -> int:
        """Raw bytes of the next row group, for a file that wants `wanted_bytes`."""
        quota_bytes = self._quota.limits.quota_bytes
        target = row_group_target_bytes(wanted_bytes, quota_bytes=quota_bytes, open_files=len(self._files))
        if target < wanted_bytes and len(self._files) > self._warned_of_files:
            # Do not log it for every file: only when twice as many are open as the last time.
            self._warned_of_files = 2 * len(self._files)
            _log.warning(
                "row groups are smaller than asked for: the quota is less than four times open files times a row group",
                open_files=len(self._files),
                wanted_bytes=wanted_bytes,
                row_group_bytes=target,
                quota_bytes=quota_bytes,
            )
        return target

    def _relieve(self, missing_bytes: int) -> None:
        self._leave_device()
        moving_bytes = sum(file.moving_bytes for file in self._files)
        for file in to_flush(self._files, missing_bytes=missing_bytes - moving_bytes):
            file.flush()
