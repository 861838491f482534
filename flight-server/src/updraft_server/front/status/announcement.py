# SPDX-License-Identifier: Apache-2.0
"""What a pool says of itself once it is ready, in its log and in --ready-file, and again when that has changed."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from updraft.service.lifecycle import StartError
from updraft.service.ready_file import ReadyFile
from updraft_server.pool.interface import WorkerPool
from updraft_server.sandbox_layers import in_words

_log = structlog.get_logger(__name__)


class Announcement:
    """What one front announces, from when its pool is ready until it ends."""

    def __init__(
        self,
        pool: WorkerPool,
        places: Callable[[], Mapping[str, str]],
        ready_file: Path | None,
        on_new_functions: Callable[[], None],
    ) -> None:
        """Nothing is said yet.

        Args:
            pool: What is announced.
            places: The names and addresses of what clients and people look for, once the listeners are open.
            ready_file: Where scripts read them; None: nowhere.
            on_new_functions: Called when functions were loaded again: none of them is what it was before.
        """
        self._pool = pool
        self._places = places
        self._ready_file = ReadyFile(ready_file, self._content) if ready_file is not None else None
        self._on_new_functions = on_new_functions
        self._functions = pool.functions
        self._generation = pool.generation
        self._reload_fault = ""

    def begin(self) -> None:
        """The pool is ready: say so, and keep it up to date. Raises StartError where the file cannot be written."""
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
        # Looked at after each change of the pool, and compared only when a zygote has told of its functions.
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
        """The names of those that can be called; says of each other one why not."""
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
            # The pool, whose change it is, serves on.
            _log.warning("--ready-file is out of date", reason=str(error))

    def _content(self) -> dict[str, object]:
        return {
            **self._places(),
            "supervisor": os.getppid(),
            "front": os.getpid(),
            "zygote": self._pool.zygote_pid,
            "reload_fault": self._pool.reload_fault,
            "workers": {info.worker: info.pid for info in self._pool.workers},
        }
