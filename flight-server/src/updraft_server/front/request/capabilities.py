# SPDX-License-Identifier: Apache-2.0
"""What a pool can run: said in its status, checked against each command."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from updraft.errors import FunctionLoadError, FunctionNotFoundError
from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.pool.interface import WorkerPool


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a pool can run."""

    functions: Sequence[FunctionDescription]
    """In the order of their registration."""
    unlisted: Sequence[FunctionDescription] = field(default=(), kw_only=True)
    """Those that can be called and are shown to nobody."""
    session_functions_allowed: bool
    """Whether the operator lets clients ship functions."""
    signatures_required: bool = field(default=False, kw_only=True)
    """Whether a driver has to have signed those."""
    python_version: str
    """Of the workers, "major.minor.patch"."""
    pyspark_version: str
    """Of the workers; empty where they have none."""

    @classmethod
    def of(cls, pool: WorkerPool, session_functions: str) -> Self:
        """Return what a pool can run now; `session_functions` is the setting: off, unsigned or signed."""
        return cls(
            functions=pool.functions,
            unlisted=pool.unlisted,
            session_functions_allowed=session_functions != "off",
            signatures_required=session_functions == "signed",
            python_version=pool.python_version,
            pyspark_version=pool.pyspark_version,
        )

    def find(self, name: str, version: str = "") -> FunctionDescription:
        """The registered function of that name, of the version that a caller pins as `name@version` or asks for.

        Without a version it is the one that was registered last. Raises FunctionNotFoundError.
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
        """The same; raises FunctionLoadError, with the reason, for one that cannot be called now."""
        function = self.find(name, version)
        if function.fault:
            raise FunctionLoadError(f"function {function.name!r} cannot be called: {function.fault}")
        return function
