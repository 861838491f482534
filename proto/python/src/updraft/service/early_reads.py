# SPDX-License-Identifier: Apache-2.0
"""Memory bound for messages that arrive before their exchange is admitted: commands, functions, artifacts.

When the service reads, gRPC receives the whole message before it reveals the message's size. So any number of clients
could send large messages at once, and neither queue nor quota would know about these messages yet. While reads of such
messages are open, the service checks how much memory it has allocated. Above the limit, it refuses half of the reads.
It picks the callers with the most open reads, and refuses the oldest reads of these callers first. Refusals rarely
affect clients that send at network speed, because their reads end soon. If unauthenticated callers have open reads, the
service first refuses all of their reads, because a legitimate request of such a caller has only a few bytes.

A check may come late on a busy machine. So only a few of the reads that began since the last check may be open at once,
and only one while memory is short. gRPC holds back unread messages. So only these few new messages can arrive before
the next check, however late that check is.
"""

import asyncio
import ctypes
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import NoReturn

import structlog

from updraft.errors import UpdraftError
from updraft.service.allocator import clean_freed_memory
from updraft.service.exchange import Call, ReadMessage
from updraft.service.identity import STRANGER, Identity
from updraft.service.metrics import Metrics

# Between two checks, a network of 2 GB/s delivers 40 MiB.
_LOOK_SECONDS = 0.02
# Allowance for the service itself: modules, and allocations of its libraries at run time.
_OWN_BYTES = 64 * 1024 * 1024

# Most first messages have arrived when their read begins, so the read holds its turn only for a moment.
_READS_BETWEEN_LOOKS = 8

_log = structlog.get_logger(__name__)


def allocated_bytes() -> int:
    """Return the bytes that the C library has allocated and not freed, or 0 if it has no mallinfo2."""
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
    """Open reads of exchanges that are not admitted yet."""

    def __init__(
        self,
        *,
        limit_bytes: int,
        refusal: Callable[[], UpdraftError],
        elsewhere: Callable[[], int],
        allocated: Callable[[], int] = allocated_bytes,
        clean: Callable[[], None] = clean_freed_memory,
    ) -> None:
        """Set the limit: `limit_bytes`, plus the memory allocated now, plus an allowance for the service itself.

        Args:
            limit_bytes: Memory for these messages.
            refusal: Function that creates the error of a refused read.
            elsewhere: Function that returns the bytes that admitted exchanges may use now, on top of the limit.
            allocated: Function that returns the bytes that the process has allocated.
            clean: Function that returns freed memory to the system.
        """
        self._limit_bytes = limit_bytes + allocated() + _OWN_BYTES
        self._refusal = refusal
        self._elsewhere = elsewhere
        self._allocated = allocated
        self._clean = clean
        # The caller of each open read, in the order in which the reads began.
        self._open: dict[asyncio.Timeout, str] = {}
        self._opened = asyncio.Event()
        self._turns = _Turns(_READS_BETWEEN_LOOKS)

    def show_in(self, metrics: Metrics) -> None:
        """Add a gauge of the open reads."""
        metrics.watch(
            f"{metrics.prefix}_early_reads",
            "Messages being read for exchanges that are not in the queue yet.",
            lambda: len(self._open),
        )

    def of(self, call: Call) -> ReadMessage:
        """Return a function that reads the next message of a call through `read`."""
        return partial(self.read, call)

    async def read(self, call: Call) -> bytes | None:
        """Return the next message, or None at the end; raise the refusal when the memory for messages is used up."""
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
        """Check memory while reads are open; run until cancelled."""
        while True:
            await self._opened.wait()
            while self._open:
                began_seconds = time.monotonic()
                self.look()
                # A check takes milliseconds if the C library has many free pieces to count.
                await asyncio.sleep(max(_LOOK_SECONDS, time.monotonic() - began_seconds))
            self._opened.clear()

    def look(self) -> None:
        """Check memory: below the limit, let more reads begin; above the limit, refuse half of the open reads.

        The next check shows whether that was enough. A single read is refused only if its caller is unauthenticated.
        """
        if self._allocated() <= self._limit_bytes + self._elsewhere():
            self._turns.renew()
            return
        self._turns.run_short()
        # gRPC receives a message in thousands of small pieces. Without this call, the process would keep the memory of
        # freed pieces.
        self._clean()
        reads = {patience: caller for patience, caller in self._open.items() if not patience.expired()}
        refused = [patience for patience, caller in reads.items() if caller == STRANGER.name] or _half(reads)
        if not refused:
            return
        _log.warning("incoming messages take too much memory: refusing their clients", clients=len(refused))
        for patience in refused:
            patience.reschedule(asyncio.get_running_loop().time())


class _Turns:
    """Limit on reads that begin between two checks. Callers take turns; each caller's reads begin in order of arrival.

    Without turns, a caller that opens many reads and sends nothing would delay all callers behind it.
    """

    def __init__(self, most: int) -> None:
        self._most = self._allowed = most
        self._held: set[asyncio.Future[None]] = set()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, caller: str) -> asyncio.Future[None]:
        """Wait for a turn and return it; pass it to `give_back` later."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._fill()
        try:
            await turn
        except BaseException:
            # The turn may have been granted at the moment of the cancellation.
            self.give_back(turn)
            raise
        return turn

    def give_back(self, turn: asyncio.Future[None]) -> None:
        """Release the turn of a finished read, so that another read can begin."""
        self._held.discard(turn)
        self._fill()

    def renew(self) -> None:
        """Reset the limit: reads that have begun no longer count."""
        self._allowed = self._most
        self._held.clear()
        self._fill()

    def run_short(self) -> None:
        """Let only one read at a time begin, until turns are renewed."""
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
            # Queue the caller behind all others.
            self._waiting[caller] = turns
        return turn


def _caller(identity: Identity) -> str:
    """Return the share, tenant or name under which a caller's reads are counted.

    A caller without a fixed tenant counts under its name, because only the command names the tenant, and the command is
    still unread.
    """
    return identity.share or identity.tenant or identity.name


def _half(reads: dict[asyncio.Timeout, str]) -> list[asyncio.Timeout]:
    """Return half of the reads: the oldest reads of the callers with the most, so that callers keep equal numbers."""
    of_callers: dict[str, list[asyncio.Timeout]] = {}
    for patience, caller in reads.items():
        of_callers.setdefault(caller, []).append(patience)
    # Position of each read among its caller's reads: 0 for the newest. The highest positions are refused first.
    depths = {patience: depth for row in of_callers.values() for depth, patience in enumerate(reversed(row))}
    return sorted(reads, key=lambda patience: -depths[patience])[: len(reads) // 2]
