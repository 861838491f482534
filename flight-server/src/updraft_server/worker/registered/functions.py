# SPDX-License-Identifier: Apache-2.0
"""Registered functions of a process, and the reasons why some of them cannot be called."""

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, TypeAlias

from updraft.errors import FunctionLoadError, FunctionNotFoundError, keep_start
from updraft.functions import Function
from updraft.functions.definition import Loaded
from updraft.functions.failures import describe, qualified_name
from updraft.functions.loaded import load
from updraft_server.ipc.load import Load
from updraft_server.ipc.worker_usage import LONGEST_WORK_SECONDS
from updraft_server.worker.explanations import explain
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.process_state import in_this_process

AnyFunction: TypeAlias = Function[Any, Any]

Running: TypeAlias = Callable[[Load], AbstractContextManager[None]]
"""Function that returns a context manager to enter while the given load runs."""

_MAX_FAULT_BYTES = 1024


def unnoted(_load: Load) -> AbstractContextManager[None]:
    """Return a context that does not report the load."""
    return nullcontext()


class RegisteredFunction:
    """Function that is deployed with the pool, and loaded when it is needed."""

    def __init__(self, function: AnyFunction, load_timeout_seconds: float = 0.0) -> None:
        """Wrap a function; `load_timeout_seconds` applies if its author has set no limit."""
        self.function = function
        self.version = function.version
        """Version, which may be any text."""
        self.name = function.name
        """Name with its namespaces."""
        self.fault = ""
        """Why the function cannot be called; empty if it can."""
        own_seconds = function.load_timeout_seconds
        limit_seconds = load_timeout_seconds if own_seconds is None else own_seconds
        if function.batching is not None:
            # The zygote limits the load. This limit applies to a worker's whole wait for a model process, which may
            # take longer than the load.
            limit_seconds = LONGEST_WORK_SECONDS
        self.as_load = Load(function.__module__, function.name, function.version, limit_seconds)
        """Description of the load, in which the constructor runs if the function is a class."""
        self._loaded: Loaded | None = None

    @property
    def batched(self) -> BatchedFunction | None:
        """Function as a model process runs it; None if workers run it themselves, or if it cannot be called."""
        batching = self.function.batching
        return None if batching is None or self.fault else BatchedFunction(self.function, batching)

    def load(self, running: Running = unnoted) -> Loaded:
        """Return the function, ready to be called; raises FunctionLoadError if its constructor fails.

        If the function is a class that has not been constructed yet, `running` is entered while its constructor runs.
        """
        if self.fault:
            raise FunctionLoadError(f"function {self.name!r} cannot be called: {self.fault}")
        if self._loaded is None:
            try:
                with running(self.as_load) if self.function.is_class else nullcontext(), in_this_process():
                    loaded = load(self.function, explain)
                    loaded.warm_up()
                self._loaded = loaded
            except BaseException as error:  # a panic of a Rust library is not an Exception
                explain(error)
                raise FunctionLoadError(
                    self.as_load.fault(describe(error)),
                    exception_class=qualified_name(error),
                    traceback="".join(traceback.format_exception(error)),
                ) from error
        return self._loaded


class ModuleFault:
    """Functions module that could not be imported, so that its functions are unknown."""

    def __init__(self, module: str, fault: str) -> None:
        self.module = module
        self.fault = keep_start(fault, _MAX_FAULT_BYTES)


class RegisteredFunctions:
    """Registered functions by name and version."""

    def __init__(self, functions: Iterable[AnyFunction] = (), load_timeout_seconds: float = 0.0) -> None:
        """Register `functions`. `load_timeout_seconds` applies to functions whose author has not set a limit."""
        self._load_timeout_seconds = load_timeout_seconds
        self._functions: dict[str, dict[str, RegisteredFunction]] = {}
        self.module_faults: list[ModuleFault] = []
        for function in functions:
            self.add(function)

    def add(self, function: AnyFunction) -> None:
        """Register a function. If two functions have the same name and version, neither can be called."""
        versions = self._functions.setdefault(function.name, {})
        known = versions.get(function.version)
        if known is None:
            versions[function.version] = RegisteredFunction(function, self._load_timeout_seconds)
        elif known.function is not function:
            places = " and in ".join(sorted({known.function.__module__, function.__module__}))
            known.fault = f"version {function.version!r} is defined twice, in {places}"

    def find(self, name: str, version: str = "") -> RegisteredFunction:
        """Return the function with that name and version. Without a version, return the version registered last.

        Raises FunctionNotFoundError, whose message lists the functions or versions of this pool.
        """
        versions = self._functions.get(name)
        if versions is None:
            known = ", ".join(sorted(self._functions)) or "none"
            raise FunctionNotFoundError(f"no function {name!r}; this pool has: {known}")
        if not version:
            return next(reversed(versions.values()))
        if version not in versions:
            raise FunctionNotFoundError(
                f"no version {version!r} of function {name!r}; this pool has: {', '.join(versions)}"
            )
        return versions[version]

    def load_for_workers(self, broken: Mapping[Load, str] = MappingProxyType({}), running: Running = unnoted) -> None:
        """Load the functions that workers inherit from the zygote. If a constructor fails, mark its function as faulty.

        Mark a function in `broken` as faulty without calling its constructor.
        """
        for registered in self:
            function = registered.function
            if function.is_class and function.loads_in == "zygote" and function.batching is None:
                if fault := broken.get(registered.as_load):
                    registered.fault = fault
                    continue
                try:
                    registered.load(running)
                except FunctionLoadError as error:
                    sys.stderr.write(f"updraft-server: {error.message}\n{error.traceback}")
                    registered.fault = error.message

    def __iter__(self) -> Iterator[RegisteredFunction]:
        return (function for versions in self._functions.values() for function in versions.values())
