# SPDX-License-Identifier: Apache-2.0
"""Announcement of a pool's state: in the log and in --ready-file once the pool is ready, and always as gRPC health.

The front writes the file again whenever its content changes. Health covers the pool and each registered function.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from updraft.service.flight_service import FLIGHT_SERVICE_NAME
from updraft.service.health import WHOLE_SERVICE, HealthBoard
from updraft.service.lifecycle import Lifecycle, Phase, ReadyFile, StartError
from updraft_server.pool.interface import WorkerPool
from updraft_server.sandbox_layers import in_words

_log = structlog.get_logger(__name__)


class Announcement:
    """Announcement of one front, kept up to date from the time the pool is ready until the front ends."""

    def __init__(
        self,
        pool: WorkerPool,
        places: Callable[[], Mapping[str, str]],
        ready_file: Path | None,
        on_new_functions: Callable[[], None],
    ) -> None:
        """Prepare the announcement; `begin` makes it.

        Args:
            pool: Pool to announce.
            places: Returns the addresses and files to announce, by name. Called only after the listeners are open.
            ready_file: File that scripts read; None writes no file.
            on_new_functions: Called after a reload, which replaces the code of all functions.
        """
        self._pool = pool
        self._places = places
        self._ready_file = ReadyFile(ready_file, self._content) if ready_file is not None else None
        self._on_new_functions = on_new_functions
        self._functions = pool.functions
        self._generation = pool.generation
        self._reload_fault = ""

    def begin(self) -> None:
        """Announce the ready pool, and its changes from now on; raise StartError if the file cannot be written."""
        functions = self._callable_functions()
        sandbox = in_words(self._pool.sandbox)
        _log.info("pool is ready", **self._places(), front=os.getpid(), functions=functions, sandbox=sandbox)
        if self._ready_file is not None:
            self._ready_file.update()
            self._pool.subscribe(self._update_file)
        self._pool.subscribe(self._look_for_new_functions)
        self._pool.subscribe(self._look_for_refused_code)

    def _look_for_refused_code(self) -> None:
        if self._pool.reload_fault == self._reload_fault:
            return
        self._reload_fault = self._pool.reload_fault
        if self._reload_fault:
            _log.error("the functions were not reloaded: the previous ones stay in use", reason=self._reload_fault)

    def _look_for_new_functions(self) -> None:
        # This method runs after each change of the pool, but compares functions only if a zygote has sent new ones.
        if self._pool.functions is self._functions:
            return
        is_same_code = self._pool.generation == self._generation
        self._generation = self._pool.generation
        if is_same_code and self._pool.functions == self._functions:
            self._functions = self._pool.functions
            return
        self._on_new_functions()
        _log.info("the functions were reloaded", functions=self._callable_functions())

    def _callable_functions(self) -> Sequence[str]:
        """Return the names of callable functions; log why each other function cannot be called."""
        self._functions = self._pool.functions
        for function in self._functions:
            if function.fault:
                _log.error(
                    "function cannot be called", function=function.name, version=function.version, reason=function.fault
                )
        return [function.name for function in self._functions if not function.fault]

    def _update_file(self) -> None:
        assert self._ready_file is not None
        try:
            self._ready_file.update()
        except StartError as error:
            # The pool continues to serve, and the file keeps its old content.
            _log.warning("--ready-file is out of date", reason=str(error))

    def _content(self) -> dict[str, object]:
        return {
            **self._places(),
            "supervisor": os.getppid(),
            "front": os.getpid(),
            "zygote": self._pool.zygote_pid,
            "reload_fault": self._pool.reload_fault,
            "refused_reloads": self._pool.refused_reloads,
            "function_faults": [function.fault for function in self._pool.functions if function.fault],
            "workers": {info.worker: info.pid for info in self._pool.workers},
        }


_FUNCTION = "updraft.function/"


class PoolHealth:
    """Health that one front publishes, kept up to date with the pool, the lifecycle and the functions."""

    def __init__(self, pool: WorkerPool, lifecycle: Lifecycle, faults: Callable[[], Mapping[str, str]]) -> None:
        """Create the health, not yet published; `faults` returns each registered function's fault, empty if healthy."""
        self.board = HealthBoard()
        self._pool = pool
        self._lifecycle = lifecycle
        self._faults = faults
        self._changed = asyncio.Event()
        self._changed.set()
        pool.subscribe(self.change)
        lifecycle.subscribe(lambda _phase: self.change())

    def change(self) -> None:
        """Publish again soon, because something has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Publish after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.publish()

    async def publish(self) -> None:
        """Publish the current health."""
        serving = self._lifecycle.phase is Phase.READY and self._pool.idle + self._pool.busy > 0
        await self.board.publish([WHOLE_SERVICE, FLIGHT_SERVICE_NAME], serving=serving)
        functions = {f"{_FUNCTION}{name}": fault for name, fault in self._faults().items()}
        for name, fault in functions.items():
            await self.board.publish([name], serving=serving and not fault)
        # Include functions that a reload has removed, to withdraw their health.
        known = [name for name in self.board.published if name.startswith(_FUNCTION)]
        await self.board.withdraw(name for name in known if name not in functions)
