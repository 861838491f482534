# SPDX-License-Identifier: Apache-2.0
"""Registered functions: functions that are deployed with a pool, and the small, engine-independent API for them.

The zygote imports the modules named by `--functions`; every worker has what they register.
"""

import dataclasses
import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

from updraft.errors import FunctionNotFoundError

BatchFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
SchemaFunction: TypeAlias = Callable[[pa.Schema], pa.Schema]


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """A named, versioned function over Arrow batches."""

    name: str
    """The name by which clients call it, such as `prices.discount`."""
    version: str
    """Its version, any text. A client that asks for no version gets the one that was registered last."""
    doc: str
    """One sentence that says what it does; shown to clients that list the pool's functions."""
    call: BatchFunction
    """The function itself: it gets a batch of arguments and returns a batch of as many results.

    It runs in a worker, for one batch at a time. An exception that it raises ends the exchange with `UserError`.
    """
    result_schema: SchemaFunction | None = None
    """Computes the schema of the results from the schema of the arguments, so that it is known before any batch.

    None if only a result shows the schema.
    """


class FunctionRegistry:
    """The registered functions of a process, by name and version."""

    def __init__(self, functions: Iterable[RegisteredFunction] = ()) -> None:
        self._functions: dict[str, dict[str, RegisteredFunction]] = {}
        for function in functions:
            self.add(function)

    def add(self, function: RegisteredFunction) -> None:
        """Register a function; raises ValueError if its name and version are taken."""
        versions = self._functions.setdefault(function.name, {})
        if function.version in versions:
            raise ValueError(f"function {function.name!r} version {function.version!r} is registered twice")
        versions[function.version] = function

    def find(self, name: str, version: str = "") -> RegisteredFunction:
        """The function with that name and version; without a version, the one registered last.

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

    def __iter__(self) -> Iterator[RegisteredFunction]:
        return (function for versions in self._functions.values() for function in versions.values())


ECHO = RegisteredFunction(
    name="echo",
    version="1",
    doc="Returns each batch unchanged: proves the path to a worker and back.",
    call=lambda batch: batch,
    result_schema=lambda schema: schema,
)

registry = FunctionRegistry([ECHO])


class FunctionModuleError(Exception):
    """Raised when a module of functions cannot be imported; the message names it and where it failed."""


def load_modules(modules: Iterable[str]) -> None:
    """Import the modules, which register their functions; raises FunctionModuleError."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}{_place(error)}"
            raise FunctionModuleError(f"the module {module!r} of --functions cannot be imported: {reason}") from error


def _place(error: Exception) -> str:
    """Where in a module the import failed; empty if Python's import system itself failed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
