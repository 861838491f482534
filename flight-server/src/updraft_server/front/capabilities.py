# SPDX-License-Identifier: Apache-2.0
"""What a pool can run: said in its status, checked against each command."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from updraft.errors import FunctionNotFoundError
from updraft_server.pool.leases import RegisteredFunctionInfo


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a pool can run."""

    functions: Sequence[RegisteredFunctionInfo]
    """In the order of their registration."""
    session_functions_allowed: bool
    """Whether the operator lets clients ship functions."""
    signatures_required: bool = field(default=False, kw_only=True)
    """Whether a driver has to have signed those."""
    python_version: str
    """Of the workers, "major.minor.patch"."""
    pyspark_version: str
    """Of the workers; empty where they have none."""

    def find(self, name: str, version: str) -> RegisteredFunctionInfo:
        """The registered function, the last one of that name when `version` is empty; raises FunctionNotFoundError."""
        for function in reversed(self.functions):
            if function.name == name and version in ("", function.version):
                return function
        known = ", ".join(sorted({f"{each.name} {each.version}".strip() for each in self.functions})) or "none"
        raise FunctionNotFoundError(
            f"no function {name!r} {version}".rstrip() + f" is registered; this pool has: {known}"
        )
