# SPDX-License-Identifier: Apache-2.0
"""Capabilities of a pool. Its status reports them, and each command is checked against them."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from updraft.errors import FunctionLoadError, FunctionNotFoundError
from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.pool.interface import WorkerPool


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Functions that a pool can run, and the versions of its workers."""

    functions: Sequence[FunctionDescription]
    """Registered functions, in the order of their registration."""
    unlisted: Sequence[FunctionDescription] = field(default=(), kw_only=True)
    """Registered functions that can be called but are not listed."""
    session_functions_allowed: bool
    """Whether the operator lets clients ship functions."""
    signatures_required: bool = field(default=False, kw_only=True)
    """Whether session functions need the signature of a driver."""
    python_version: str
    """Python version of the workers, as "major.minor.patch"."""
    pyspark_version: str
    """PySpark version of the workers; empty if they have no PySpark."""

    @classmethod
    def of(cls, pool: WorkerPool, session_functions: str) -> Self:
        """Return the current capabilities of a pool; `session_functions` is the setting: off, unsigned or signed."""
        return cls(
            functions=pool.functions,
            unlisted=pool.unlisted,
            session_functions_allowed=session_functions != "off",
            signatures_required=session_functions == "signed",
            python_version=pool.python_version,
            pyspark_version=pool.pyspark_version,
        )

    def find(self, name: str, version: str = "") -> FunctionDescription:
        """Return the registered function with this name and version; `name` may also be `name@version`.

        Without a version, return the version that was registered last. Raises FunctionNotFoundError.
        """
        name, _, pinned = name.partition("@")
        version = version or pinned
        for function in reversed([*self.unlisted, *self.functions]):
            if function.name == name and version in ("", function.version):
                return function
        known = ", ".join(sorted(f"{each.name} {each.version}" for each in self.functions if each.version)) or "none"
        faults = "".join(f"; {each.fault}" for each in self.functions if not each.version)
        names = {each.name for each in self.functions if each.version}
        near = [] if name in names else difflib.get_close_matches(name, names, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise FunctionNotFoundError(
            f"no function {name!r} {version}".rstrip() + f" is registered{meant}; this pool has: {known}{faults}"
        )

    def callable(self, name: str, version: str = "") -> FunctionDescription:
        """Return the function that `find` returns; raise FunctionLoadError if the function cannot be called now."""
        function = self.find(name, version)
        if function.fault:
            raise FunctionLoadError(f"function {function.name!r} cannot be called: {function.fault}")
        return function
