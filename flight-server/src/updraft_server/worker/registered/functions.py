# SPDX-License-Identifier: Apache-2.0
"""Registered functions: what is deployed with a pool, against a small API that knows no engine.

The zygote imports the modules that the settings name; whatever they register is there in every worker.
"""

import dataclasses
import enum
import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

BatchFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
SchemaFunction: TypeAlias = Callable[[pa.Schema], pa.Schema]


class FunctionShape(enum.Enum):
    """How replies relate to requests."""

    ONE_TO_ONE = "one-to-one"  # one reply of as many rows for each request batch


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """A named, versioned function over Arrow batches."""

    name: str
    version: str
    doc: str
    call: BatchFunction
    shape: FunctionShape = FunctionShape.ONE_TO_ONE
    result_schema: SchemaFunction | None = None
    """The schema of the results for that of the arguments; None where only a result tells."""


class FunctionRegistry:
    """The registered functions of a process, by name and version."""

    def __init__(self, functions: Iterable[RegisteredFunction] = ()) -> None:
        self._functions: dict[str, dict[str, RegisteredFunction]] = {}
        for function in functions:
            self.add(function)

    def add(self, function: RegisteredFunction) -> None:
        """Register a function; raises ValueError when the name and version are taken."""
        versions = self._functions.setdefault(function.name, {})
        if function.version in versions:
            raise ValueError(f"function {function.name!r} version {function.version!r} is registered twice")
        versions[function.version] = function

    def find(self, name: str, version: str = "") -> RegisteredFunction:
        """The function of that name, the one registered last without a version; raises LookupError in words."""
        versions = self._functions.get(name)
        if versions is None:
            known = ", ".join(sorted(self._functions)) or "none"
            raise LookupError(f"no function {name!r}; this pool has: {known}")
        if not version:
            return next(reversed(versions.values()))
        if version not in versions:
            raise LookupError(f"no version {version!r} of function {name!r}; this pool has: {', '.join(versions)}")
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
    """Import what registers further functions; raises FunctionModuleError."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}{_place(error)}"
            raise FunctionModuleError(f"the module {module!r} of --functions cannot be imported: {reason}") from error


def _place(error: Exception) -> str:
    """Where in a module an import failed; empty when Python's import system itself did."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
