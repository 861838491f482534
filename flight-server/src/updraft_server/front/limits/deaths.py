# SPDX-License-Identifier: Apache-2.0
"""Worker deaths that functions cause: hold-back of functions, and health of registered functions.

A function that keeps killing workers is held back. This is policy only; the caller provides the clock. A single death
proves little, because the kernel or an operator may have killed the worker. After many deaths in a row without a
success, the function is most likely the cause.
"""

import hashlib
import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from updraft.errors import PoolFullError, UpdraftError, keep_start
from updraft.service.metrics import Metrics
from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.front.request.request import Request
from updraft_server.ipc.function_list import DEATHS_IN_A_ROW
from updraft_server.pool.leases import Owner

ALLOWED_DEATHS = 20
"""Number of deaths in a row after which a function is held back. Spark tries each task four times, so a few tasks with
bad rows kill a dozen workers. A function that has killed more workers than that, with no success in between, does
little else."""

_MAX_FAULT_BYTES = 1024

_log = structlog.get_logger(__name__)

_FIRST_HOLD_SECONDS = 10.0
_LONGEST_HOLD_SECONDS = 160.0
# After this time without a death, a function's count restarts at 0 and its hold time at the shortest.
_FORGOTTEN_AFTER_SECONDS = 300.0
# An owner of session functions is held back after this many times as many deaths as one function. This catches a
# function that changes with each exchange.
_FUNCTIONS_OF_AN_OWNER = 16


class Culprit(NamedTuple):
    """Function, owner or rows for which deaths are counted together."""

    name: str
    """Name in error messages."""
    key: Hashable
    allowed_deaths: int
    killed: str = "workers"
    remedy: str = "correct it, or try again when that time is over"
    is_registered: bool = False
    """Whether reloading the pool's functions may fix the cause."""


@dataclass(slots=True)
class _Deaths:
    is_registered: bool
    deaths: int = 0
    last_death_seconds: float = -math.inf
    hold_seconds: float = _FIRST_HOLD_SECONDS
    held_until_seconds: float = -math.inf


class HoldBack:
    """Functions, owners and rows of one pool that have killed workers or model processes recently."""

    def __init__(self, allowed_deaths: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the policy, which holds a function back after `allowed_deaths` deaths without a success."""
        self._allowed_deaths = allowed_deaths
        self._clock = clock
        self._records: dict[Hashable, _Deaths] = {}

    def check(self, owner: Owner, request: Request) -> None:
        """Raise PoolFullError, with a retry hint, if the function, its owner or its rows are held back now."""
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
        """Count a worker that the function killed, directly or because it exceeded a limit."""
        self._count(self._culprits(owner, request))

    def ended_a_model(self, owner: Owner, request: Request) -> None:
        """Count a model process that died while it processed rows of this exchange alone."""
        self._count((self._rows(owner, request),))

    def _count(self, culprits: Iterable[Culprit]) -> None:
        now_seconds = self._clock()
        self._forget_old(now_seconds)
        for culprit in culprits:
            # Move the record to the end, because records are ordered by their last death.
            record = self._records.pop(culprit.key) if culprit.key in self._records else _Deaths(culprit.is_registered)
            self._records[culprit.key] = record
            record.deaths += 1
            record.last_death_seconds = now_seconds
            if record.deaths >= culprit.allowed_deaths and record.held_until_seconds <= now_seconds:
                record.held_until_seconds = now_seconds + record.hold_seconds
                record.hold_seconds = min(2 * record.hold_seconds, _LONGEST_HOLD_SECONDS)

    def succeeded(self, owner: Owner, request: Request) -> None:
        """Subtract `allowed_deaths` from the counts of the function and its owner, because an exchange succeeded."""
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

    def show_in(self, metrics: Metrics) -> None:
        """Add a gauge of the functions that are held back now."""
        metrics.watch(
            "updraft_functions_held_back",
            "Functions refused because they keep killing workers; an owner held back as a whole counts as one more.",
            self.held_now,
        )

    def held_now(self) -> int:
        """Return how many functions are held back now; an owner that is held back as a whole adds one."""
        now_seconds = self._clock()
        return sum(record.held_until_seconds > now_seconds for record in self._records.values())

    def _forget_old(self, now_seconds: float) -> None:
        while self._records:
            key, record = next(iter(self._records.items()))
            if now_seconds - record.last_death_seconds <= _FORGOTTEN_AFTER_SECONDS:
                return
            del self._records[key]

    def _rows(self, owner: Owner, request: Request) -> Culprit:
        """Return the culprit for the rows that a tenant, or an owner without a tenant, sends to a batched function.

        Rows of other senders are not held back.
        """
        whose = f"tenant {owner.tenant!r}" if owner.tenant else f"application {owner.application_id!r}"
        return Culprit(
            f"{whose}, with its rows,",
            ("rows", owner.tenant or owner, request.function, request.version),
            min(self._allowed_deaths, DEATHS_IN_A_ROW),
            f"model processes of the function {request.function!r}",
            "leave out the rows that it cannot process, or correct the function",
            is_registered=True,
        )

    def _culprits(self, owner: Owner, request: Request) -> tuple[Culprit, ...]:
        """Return the culprits to count deaths for: this owner's function and, if it is a session function, the owner.

        The owner of a session function is included because the owner could ship a different function each time.
        """
        if not request.is_session:
            # Count versions separately, because another version may fix the function.
            key = owner, request.function, request.version
            version = f"version {request.version!r} of " if request.version else ""
            name = f"{version}the function {request.function!r}"
            return (Culprit(name, key, self._allowed_deaths, is_registered=True),)
        digest = request.function_sha256 or hashlib.sha256(request.payload).digest()
        whose = f"application {owner.application_id!r}" if owner.application_id else f"tenant {owner.tenant!r}"
        if owner.session_id:
            whose = f"session {owner.session_id!r} of {whose}"
        return (
            Culprit(f"the session function of {whose}", (owner, digest), self._allowed_deaths),
            Culprit(whose, owner, _FUNCTIONS_OF_AN_OWNER * self._allowed_deaths),
        )


@dataclass(slots=True)
class _Record:
    deaths: int = 0
    fault: str = ""


class FunctionHealth:
    """Health of registered functions, as their exchanges have shown it. Each version counts as a separate function."""

    def __init__(
        self,
        functions: Callable[[], Sequence[FunctionDescription]],
        model_faults: Callable[[], Mapping[tuple[str, str], str]] = dict,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Regard every function as healthy until an exchange shows otherwise.

        Args:
            functions: Returns the current functions of the pool.
            model_faults: Returns why batched functions cannot be called now, by name and version.
            on_change: Called when an exchange shows that a function is unhealthy, or healthy again.
        """
        self._functions = functions
        self._model_faults = model_faults
        self._on_change = on_change
        self._records: dict[tuple[str, str], _Record] = {}

    def could_not_be_loaded(self, request: Request, error: UpdraftError) -> None:
        """Mark a function as unhealthy because a worker could not load it and ended the exchange with this error."""
        if any(
            function.batched
            for function in self._functions()
            if (function.name, function.version) == (request.function, request.version)
        ):
            # A model process loads a batched function, not the worker. That process has failed, and its successor may
            # be ready already.
            return
        self._fall_ill(request, self._record(request), error.message)

    def died(self, request: Request, error: UpdraftError) -> None:
        """Count a worker that the function killed, or that the front ended because the function exceeded a limit."""
        record = self._record(request)
        record.deaths += 1
        if record.deaths >= DEATHS_IN_A_ROW:
            self._fall_ill(
                request, record, f"it has killed {record.deaths} workers in a row, the last one: {error.message}"
            )

    def succeeded(self, request: Request) -> None:
        """Clear the record of a function because one of its exchanges has succeeded."""
        record = self._records.pop((request.function, request.version), None)
        if record is not None and record.fault:
            _log.info("function is healthy again", function=request.function, version=request.version)
            self._on_change()

    def loaded_again(self) -> None:
        """Clear all records, because a reload has replaced the code of all functions."""
        self._records.clear()

    def shown(self, functions: Iterable[FunctionDescription]) -> Sequence[FunctionDescription]:
        """Return the descriptions, with the faults that exchanges have shown filled in."""
        return [self._shown(function) for function in functions]

    def faults(self) -> dict[str, str]:
        """Return for each function name why the function cannot be called, or what is wrong with it; empty if healthy.

        If a function has several versions, use the fault of the last version, because callers that name no version
        call the last one.
        """
        return {function.name: function.fault for function in self.shown(self._functions())}

    def show_in(self, metrics: Metrics) -> None:
        """Add a gauge of unhealthy functions."""
        metrics.watch_by_label(
            "updraft_functions_unhealthy",
            "Versions of registered functions that cannot be loaded or keep killing workers; a module that cannot be "
            "imported counts as one.",
            "function",
            self.unhealthy,
        )

    def unhealthy(self) -> dict[str, int]:
        """Return the number of versions with a fault, by function name."""
        counts: dict[str, int] = {}
        for function in self.shown(self._functions()):
            counts[function.name] = counts.get(function.name, 0) + bool(function.fault)
        return counts

    def _shown(self, function: FunctionDescription) -> FunctionDescription:
        version = function.name, function.version
        record = self._records.get(version)
        shown = self._model_faults().get(version) or (record.fault if record is not None else "")
        if not function.fault and not shown:
            return function
        ill = FunctionDescription()
        ill.CopyFrom(function)
        ill.fault = function.fault or shown
        ill.fault_is_final = bool(function.fault)
        return ill

    def _record(self, request: Request) -> _Record:
        return self._records.setdefault((request.function, request.version), _Record())

    def _fall_ill(self, request: Request, record: _Record, fault: str) -> None:
        was_healthy = not record.fault
        record.fault = keep_start(fault, _MAX_FAULT_BYTES)
        if was_healthy:
            _log.error("function is unhealthy", function=request.function, version=request.version, reason=record.fault)
            self._on_change()
