# SPDX-License-Identifier: Apache-2.0
"""Bounds the memory of messages that arrive before their exchange has a place: commands, functions, artifacts.

gRPC takes a message in as a whole once somebody reads, and says nothing of its size before it is there. So any number
of clients may send any number of large messages at once, of which neither queue nor quota knows yet. While such reads
are open, the service looks at the memory that it has allocated; where that is more than it may be, half of the reads
are refused: those of the callers with most of them, and of each caller those that have been open for the longest time.
A client that sends at the pace of a network is done by then. Before anybody else all strangers are refused, whose
questions are a few bytes long.
"""

import asyncio
import ctypes
import time
from collections.abc import Callable
from typing import NoReturn

import structlog

from updraft.errors import UpdraftError
from updraft.service.allocator import clean_freed_memory
from updraft.service.audit import CallRecord
from updraft.service.exchange import Call
from updraft.service.identity import STRANGER, Identity

# Memory grows by what a network brings meanwhile: 40 MiB at 2 GB/s.
_LOOK_SECONDS = 0.02
# Of the service itself: its modules and what its libraries allocate as they go.
_OWN_BYTES = 64 * 1024 * 1024

_log = structlog.get_logger(__name__)


def allocated_bytes() -> int:
    """What the C library has handed out and not got back; 0 where it does not say."""
    information = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if information is None:
        return 0
    information.restype = _MallInfo
    found = information()
    return int(found.uordblks + found.hblkhd)


class _MallInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class EarlyReads:
    """The reads of exchanges that have no place yet."""

    def __init__(
        self,
        *,
        limit_bytes: int,
        refusal: Callable[[], UpdraftError],
        elsewhere: Callable[[], int],
        allocated: Callable[[], int] = allocated_bytes,
    ) -> None:
        """`elsewhere` says how many bytes other exchanges may take now beyond the limit; `refusal` makes an error."""
        self._limit_bytes = limit_bytes + allocated() + _OWN_BYTES
        self._refusal = refusal
        self._elsewhere = elsewhere
        self._allocated = allocated
        # In the order in which they began, with whose they are.
        self._open: dict[asyncio.Timeout, str] = {}
        self._opened = asyncio.Event()

    @property
    def open_reads(self) -> int:
        """Reads of exchanges that have no place yet."""
        return len(self._open)

    def of(self, call: Call) -> Call:
        """The call, whose reads raise the refusal when the memory for messages is used up."""
        return _EarlyCall(call, self)

    async def read(self, call: Call) -> bytes | None:
        """The next message; raises the refusal."""
        try:
            async with asyncio.timeout(None) as patience:
                self._open[patience] = _caller(call.identity)
                self._opened.set()
                try:
                    return await call.read()
                finally:
                    del self._open[patience]
        except TimeoutError:
            if not patience.expired():
                raise
            raise self._refusal() from None

    async def watch(self) -> NoReturn:
        """Look as long as there is something to look at."""
        while True:
            await self._opened.wait()
            while self._open:
                began_seconds = time.monotonic()
                self.look()
                # A look takes milliseconds where the C library has many free pieces to count.
                await asyncio.sleep(max(_LOOK_SECONDS, time.monotonic() - began_seconds))
            self._opened.clear()

    def look(self) -> None:
        """Refuse half of the reads where they may be too much: what they give back shows at the next look.

        One is never refused, whatever else takes memory, unless it is a stranger's.
        """
        if self._allocated() <= self._limit_bytes + self._elsewhere():
            return
        # gRPC receives a message in thousands of small pieces, whose memory the process would otherwise keep.
        clean_freed_memory()
        reads = {patience: caller for patience, caller in self._open.items() if not patience.expired()}
        refused = [patience for patience, caller in reads.items() if caller == STRANGER.name] or _half(reads)
        if not refused:
            return
        _log.warning("messages that arrive take too much memory: their clients are refused", clients=len(refused))
        for patience in refused:
            patience.reschedule(asyncio.get_running_loop().time())


def _caller(identity: Identity) -> str:
    """Whose share reads take. Which tenant a caller names that may name any is not known before its command is read."""
    return identity.share or identity.tenant or identity.name


def _half(reads: dict[asyncio.Timeout, str]) -> list[asyncio.Timeout]:
    """Half of the reads, the older ones, of the callers with most of them: no caller is left with more than another."""
    of_callers: dict[str, list[asyncio.Timeout]] = {}
    for patience, caller in reads.items():
        of_callers.setdefault(caller, []).append(patience)
    # How far down in the row of its caller's a read stands, the newest last: the deepest go first.
    depths = {patience: depth for row in of_callers.values() for depth, patience in enumerate(reversed(row))}
    return sorted(reads, key=lambda patience: -depths[patience])[: len(reads) // 2]


class _EarlyCall:
    """A call before its exchange has a place."""

    def __init__(self, call: Call, reads: EarlyReads) -> None:
        self._call = call
        self._reads = reads

    async def read(self) -> bytes | None:
        return await self._reads.read(self._call)

    async def write(self, message: bytes) -> None:
        await self._call.write(message)

    async def accept(self) -> None:
        await self._call.accept()

    def header(self, name: str) -> str:
        return self._call.header(name)

    @property
    def identity(self) -> Identity:
        return self._call.identity

    @property
    def record(self) -> CallRecord:
        return self._call.record

    @property
    def remaining_seconds(self) -> float | None:
        return self._call.remaining_seconds
