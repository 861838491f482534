# SPDX-License-Identifier: Apache-2.0
"""Modules and functions that end or hang the process that loads them: a pool goes on without them."""

import signal
from collections.abc import Mapping

from updraft.service.child import describe_exit
from updraft_server.ipc.load import Load

# Whoever is short of memory may kill a zygote that does nothing wrong; not twice at the same place.
_OTHERS_KILL = -signal.SIGKILL


class BrokenLoads:
    """Those of one pool, until its functions are loaded again."""

    def __init__(self) -> None:
        self._faults: dict[Load, str] = {}
        self._suspect: Load | None = None
        """Ran when the last zygote was killed, maybe by others."""

    @property
    def faults(self) -> Mapping[Load, str]:
        """Why each of them is left out, for whoever calls its functions."""
        return self._faults

    def hung(self, load: Load) -> str:
        """Leave out what takes longer than it may, from now on; its fault."""
        return self._faults.setdefault(load, load.fault(load.lateness))

    def ended(self, load: Load | None, code: int) -> str:
        """Leave out what has ended its zygote; its fault, or nothing where it is not to blame."""
        is_certain = code != _OTHERS_KILL or load == self._suspect or load in self._faults
        self._suspect = load
        if load is None or not is_certain:
            return ""
        what = "constructor" if load.function else "code"
        return self._faults.setdefault(load, load.fault(f"the process that ran its {what} {describe_exit(code)}"))

    def forget(self) -> None:
        """Functions are loaded as they are now."""
        self._faults.clear()
        self._suspect = None
