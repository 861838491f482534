# SPDX-License-Identifier: Apache-2.0
"""Refuses for a time what keeps killing its workers, so that a pool forks for everybody else.

Workers die alone. A model process dies with the rows of everybody who calls its function, and has to be loaded again: a
tenant whose rows end some is held back sooner than a function that ends workers, and no success forgives it.

Policy alone, with the time handed in. A death proves little: the kernel or an operator may have killed the worker. A
long row of them without a success in between is no bad luck any more.
"""

import hashlib
import math
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from updraft.errors import PoolFullError
from updraft_server.front.request import Request
from updraft_server.ipc.function_list import DEATHS_IN_A_ROW
from updraft_server.pool.leases import Owner

_FIRST_HOLD_SECONDS = 10.0
_LONGEST_HOLD_SECONDS = 160.0
# What has killed nothing for so long starts anew, also with the time for which it is held back.
_FORGOTTEN_AFTER_SECONDS = 300.0
# An owner may have so many functions that kill workers; a function that changes with each exchange is many.
_FUNCTIONS_OF_AN_OWNER = 16


class Culprit(NamedTuple):
    """Whose deaths are counted together."""

    name: str
    """As errors have it."""
    key: Hashable
    allowed_deaths: int
    killed: str = "workers"
    remedy: str = "correct it, or raise --held-back-after-deaths of the pool"
    is_registered: bool = False
    """Whether another load of the pool's functions may have corrected it."""


@dataclass(slots=True)
class _Record:
    is_registered: bool
    deaths: int = 0
    last_death_seconds: float = -math.inf
    hold_seconds: float = _FIRST_HOLD_SECONDS
    held_until_seconds: float = -math.inf


class HoldBack:
    """The functions of one pool that have killed workers lately."""

    def __init__(self, allowed_deaths: int, clock: Callable[[], float] = time.monotonic) -> None:
        """After so many deaths without a success a function is held back; 0 is never."""
        self._allowed_deaths = allowed_deaths
        self._clock = clock
        self._records: dict[Hashable, _Record] = {}

    def check(self, owner: Owner, request: Request) -> None:
        """Raise PoolFullError, with a retry hint, for what is held back now."""
        if not self._records:
            return
        now_seconds = self._clock()
        rows = (self._rows(owner, request),) if request.is_batched else ()
        for culprit in (*self._culprits(owner, request), *rows):
            record = self._records.get(culprit.key)
            if record is None or record.held_until_seconds <= now_seconds:
                continue
            raise PoolFullError(
                f"{culprit.name} has killed {record.deaths} {culprit.killed} in a row and is held back for "
                f"{math.ceil(record.held_until_seconds - now_seconds)} seconds: {culprit.remedy}",
                retry_after_milliseconds=math.ceil((record.held_until_seconds - now_seconds) * 1000),
            )

    def died(self, owner: Owner, request: Request) -> None:
        """A worker has died while it ran the function, or was ended for what the function took."""
        self._count(self._culprits(owner, request))

    def ended_a_model(self, owner: Owner, request: Request) -> None:
        """Count a model process that has ended with the rows of this exchange alone."""
        self._count((self._rows(owner, request),))

    def _count(self, culprits: Iterable[Culprit]) -> None:
        if not self._allowed_deaths:
            return
        now_seconds = self._clock()
        self._forget_old(now_seconds)
        for culprit in culprits:
            # Behind all others: the oldest are in front.
            record = self._records.pop(culprit.key) if culprit.key in self._records else _Record(culprit.is_registered)
            self._records[culprit.key] = record
            record.deaths += 1
            record.last_death_seconds = now_seconds
            if record.deaths >= culprit.allowed_deaths and record.held_until_seconds <= now_seconds:
                record.held_until_seconds = now_seconds + record.hold_seconds
                record.hold_seconds = min(2 * record.hold_seconds, _LONGEST_HOLD_SECONDS)

    def succeeded(self, owner: Owner, request: Request) -> None:
        """An exchange of the function has ended well: as many deaths are forgiven as it takes to be held back."""
        if not self._records:
            return
        for culprit in self._culprits(owner, request):
            record = self._records.get(culprit.key)
            if record is not None:
                record.deaths -= self._allowed_deaths
                if record.deaths <= 0:
                    del self._records[culprit.key]

    def loaded_again(self) -> None:
        """Forget the deaths that registered functions caused: their code has been replaced."""
        self._records = {key: record for key, record in self._records.items() if not record.is_registered}

    def held_now(self) -> int:
        """How many are held back; an owner whose functions all are is one more."""
        now_seconds = self._clock()
        return sum(record.held_until_seconds > now_seconds for record in self._records.values())

    def _forget_old(self, now_seconds: float) -> None:
        while self._records:
            key, record = next(iter(self._records.items()))
            if now_seconds - record.last_death_seconds <= _FORGOTTEN_AFTER_SECONDS:
                return
            del self._records[key]

    def _rows(self, owner: Owner, request: Request) -> Culprit:
        """The rows that a tenant sends to a batched function; without a tenant an owner's: others are not meant."""
        whose = f"tenant {owner.tenant!r}" if owner.tenant else f"application {owner.application_id!r}"
        return Culprit(
            f"{whose}, with its rows,",
            ("rows", owner.tenant or owner, request.function, request.version),
            min(self._allowed_deaths, DEATHS_IN_A_ROW),
            f"model processes of the function {request.function!r}",
            "leave out the rows that it cannot bear, or correct the function",
            is_registered=True,
        )

    def _culprits(self, owner: Owner, request: Request) -> tuple[Culprit, ...]:
        """The function, and whoever brings it, who could bring another one each time. Never anybody else's."""
        if not request.is_session:
            # Another version may be the one that was mended.
            key = owner, request.function, request.version
            version = f"version {request.version!r} of " if request.version else ""
            name = f"{version}the function {request.function!r}"
            return (Culprit(name, key, self._allowed_deaths, is_registered=True),)
        digest = hashlib.blake2b(request.payload, digest_size=16).digest()
        whose = f"application {owner.application_id!r}" if owner.application_id else f"tenant {owner.tenant!r}"
        if owner.session_id:
            whose = f"session {owner.session_id!r} of {whose}"
        return (
            Culprit(f"the session function of {whose}", (owner, digest), self._allowed_deaths),
            Culprit(whose, owner, _FUNCTIONS_OF_AN_OWNER * self._allowed_deaths),
        )
