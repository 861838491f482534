# SPDX-License-Identifier: Apache-2.0
"""Bounds the memory of messages that arrive before their exchange has a place: commands, functions, artifacts.

gRPC takes a message in as a whole once somebody reads, and says nothing of its size before it is there. So any number
of clients may send any number of large messages at once, of which neither queue nor quota knows yet. While such reads
are open, the service looks at the memory that it has allocated; where that is more than it may be, half of the reads
are refused: those of the callers with most of them, and of each caller those that have been open for the longest time.
A client that sends at the pace of a network is done by then. Before anybody else all strangers are refused, whose
questions are a few bytes long.

A look may come late on a busy machine. So only a few reads begin between two looks, besides those that take the place
of one that has ended, and one at a time while memory is short: what arrives before the next look is so many messages at
most, however long it takes. gRPC holds back unread messages.
"""

import asyncio
import ctypes
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NoReturn

import structlog

from updraft.errors import UpdraftError
from updraft.service.allocator import clean_freed_memory
from updraft.service.audit import CallRecord
from updraft.service.exchange import Call
from updraft.service.identity import STRANGER, Identity
from updraft.service.metrics import Metrics

# Memory grows by what a network brings meanwhile: 40 MiB at 2 GB/s.
_LOOK_SECONDS = 0.02
# Of the service itself: its modules and what its libraries allocate as they go.
_OWN_BYTES = 64 * 1024 * 1024

# Most first messages are there when their read begins, and take a turn for no time.
_READS_BETWEEN_LOOKS = 8

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
        self._turns = _Turns(_READS_BETWEEN_LOOKS)

    def show_in(self, metrics: Metrics) -> None:
        """Add a gauge of the open reads."""
        metrics.watch(
            f"{metrics.prefix}_early_reads",
            "Messages being read of exchanges that have no place in the queue yet.",
            lambda: len(self._open),
        )

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
                    turn = await self._turns.take(_caller(call.identity))
                    try:
                        return await call.read()
                    finally:
                        self._turns.give_back(turn)
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
        """Let more reads begin, or refuse half of them where they may be too much: the next look shows what that gives.

        One is never refused, whatever else takes memory, unless it is a stranger's.
        """
        if self._allocated() <= self._limit_bytes + self._elsewhere():
            self._turns.renew()
            return
        self._turns.run_short()
        # gRPC receives a message in thousands of small pieces, whose memory the process would otherwise keep.
        clean_freed_memory()
        reads = {patience: caller for patience, caller in self._open.items() if not patience.expired()}
        refused = [patience for patience, caller in reads.items() if caller == STRANGER.name] or _half(reads)
        if not refused:
            return
        _log.warning("messages that arrive take too much memory: their clients are refused", clients=len(refused))
        for patience in refused:
            patience.reschedule(asyncio.get_running_loop().time())


class _Turns:
    """Reads that may begin now: callers take turns, and the reads of one caller begin in the order in which they came.

    Otherwise the silent reads of one caller would hold up everybody who comes after them.
    """

    def __init__(self, most: int) -> None:
        self._most = self._allowed = most
        self._held: set[asyncio.Future[None]] = set()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, caller: str) -> asyncio.Future[None]:
        """Wait for a turn and return it, for `give_back`."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._fill()
        try:
            await turn
        except BaseException:
            # It may have been given in the same moment.
            self.give_back(turn)
            raise
        return turn

    def give_back(self, turn: asyncio.Future[None]) -> None:
        """Let another read take the turn of one that has ended."""
        self._held.discard(turn)
        self._fill()

    def renew(self) -> None:
        """Count reads that have begun no longer."""
        self._allowed = self._most
        self._held.clear()
        self._fill()

    def run_short(self) -> None:
        """Let one read at a time begin, until turns are renewed."""
        self._allowed = 1

    def _fill(self) -> None:
        while self._waiting and len(self._held) < self._allowed:
            turn = self._next()
            if not turn.done():
                self._held.add(turn)
                turn.set_result(None)

    def _next(self) -> asyncio.Future[None]:
        caller, turns = self._waiting.popitem(last=False)
        turn = turns.popleft()
        if turns:
            # Behind all other callers.
            self._waiting[caller] = turns
        return turn


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
