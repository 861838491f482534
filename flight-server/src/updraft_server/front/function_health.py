# SPDX-License-Identifier: Apache-2.0
"""Which registered functions cannot be called, or keep ending badly, and why: for status, health, metrics and log.

What the workers' side has said of a function (`FunctionDescription.fault`) is final, and calls are refused with it.
What exchanges have shown is not: calls go on, and the next one that ends well proves the function healthy again. Of
batched functions it is their model processes that can or cannot be called: the zygote says so, and says when that is
over.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from updraft.errors import UpdraftError, keep_start
from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.front.request import Request
from updraft_server.ipc.function_list import DEATHS_IN_A_ROW

_MAX_FAULT_BYTES = 1024

_log = structlog.get_logger(__name__)


@dataclasses.dataclass(slots=True)
class _Record:
    deaths: int = 0
    fault: str = ""


class FunctionHealth:
    """What the exchanges of registered functions have shown of them. Each version is a function of its own."""

    def __init__(
        self,
        functions: Callable[[], Sequence[FunctionDescription]],
        model_faults: Callable[[], Mapping[tuple[str, str], str]] = dict,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing is known yet.

        Args:
            functions: Those of the pool now.
            model_faults: Why batched functions cannot be called now, by name and version.
            on_change: Called when an exchange shows that a function has fallen ill, or is well again.
        """
        self._functions = functions
        self._model_faults = model_faults
        self._on_change = on_change
        self._records: dict[tuple[str, str], _Record] = {}

    def could_not_be_loaded(self, request: Request, error: UpdraftError) -> None:
        """A worker has tried, and refused the exchange with this error."""
        if any(
            function.batched
            for function in self._functions()
            if (function.name, function.version) == (request.function, request.version)
        ):
            # No worker loads it: its model process has failed, and the next one may be there already.
            return
        self._fall_ill(request, self._record(request), error.message)

    def died(self, request: Request, error: UpdraftError) -> None:
        """A worker has died of the function, or was ended for what it took."""
        record = self._record(request)
        record.deaths += 1
        if record.deaths >= DEATHS_IN_A_ROW:
            self._fall_ill(
                request, record, f"{record.deaths} workers in a row have died of it, the last one: {error.message}"
            )

    def succeeded(self, request: Request) -> None:
        """An exchange of the function has ended well."""
        record = self._records.pop((request.function, request.version), None)
        if record is not None and record.fault:
            _log.info("function is healthy again", function=request.function, version=request.version)
            self._on_change()

    def loaded_again(self) -> None:
        """What is known was shown by code that is gone."""
        self._records.clear()

    def shown(self, functions: Iterable[FunctionDescription]) -> Sequence[FunctionDescription]:
        """Descriptions with what exchanges have shown."""
        return [self._shown(function) for function in functions]

    def faults(self) -> dict[str, str]:
        """Of each name why the function cannot be called, or what is wrong with it; empty for healthy ones.

        Of several versions the last one counts, which a caller gets who asks for none.
        """
        return {function.name: function.fault for function in self.shown(self._functions())}

    def unhealthy(self) -> dict[str, int]:
        """Of each name the number of versions with a fault."""
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
