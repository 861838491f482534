# SPDX-License-Identifier: Apache-2.0
"""Modules and functions that end or hang the process that loads them: a pool goes on without them."""

import dataclasses
import json
import signal
from collections.abc import Mapping

from updraft.service.child import describe_exit
from updraft_server.ipc.load import Load

# Whoever is short of memory may kill a zygote that does nothing wrong; not twice at the same place.
_OTHERS_KILL = -signal.SIGKILL
# A zygote is told of them in its environment, where a variable holds 128 KiB. More deaths are deaths as any other.
_MOST_BYTES = 64 * 1024


class BrokenLoads:
    """Those of one pool, until its functions are loaded again."""

    def __init__(self) -> None:
        self._faults: dict[Load, str] = {}
        self._size_bytes = 0
        self._ended: set[Load] = set()
        """Those of the faults with which a zygote has ended: no other one can, unless its code lies."""
        self._suspect: Load | None = None
        """Ran when the last zygote was killed, maybe by others."""

    @property
    def faults(self) -> Mapping[Load, str]:
        """Why each of them is left out, for whoever calls its functions."""
        return self._faults

    def exceeded(self, load: Load, reason: str) -> None:
        """Leave out what takes more time or memory than it may, from now on."""
        self._leave_out(load, reason)

    def ended(self, load: Load | None, code: int) -> str:
        """Leave out what has ended its zygote; its fault, or nothing where it is not to blame or there are too many."""
        is_certain = code != _OTHERS_KILL or load == self._suspect or load in self._faults
        self._suspect = load
        if load is None or not is_certain or load in self._ended:
            return ""
        what = "constructor" if load.function else "code"
        fault = self._leave_out(load, f"the process that ran its {what} {describe_exit(code)}")
        if fault:
            self._ended.add(load)
        return fault

    def forget(self) -> None:
        """Functions are loaded as they are now."""
        self._faults.clear()
        self._ended.clear()
        self._size_bytes = 0
        self._suspect = None

    def _leave_out(self, load: Load, reason: str) -> str:
        fault = load.fault(reason)
        if load not in self._faults:
            size_bytes = self._size_bytes + len(json.dumps([dataclasses.asdict(load), fault]))
            if size_bytes > _MOST_BYTES:
                return ""
            self._size_bytes = size_bytes
        return self._faults.setdefault(load, fault)
