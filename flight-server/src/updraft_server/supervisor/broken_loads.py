# SPDX-License-Identifier: Apache-2.0
"""Loads that end or hang their process: a pool goes on without those modules and functions."""

import dataclasses
import json
import signal
from collections.abc import Mapping

from updraft.service.child import describe_exit
from updraft_server.ipc.load import Load

# A kill may come from outside, because memory ran out, although the zygote did nothing wrong; but not twice during the
# same load.
_OTHERS_KILL = -signal.SIGKILL
# A zygote gets the faults in an environment variable, which holds at most 128 KiB. Beyond this size, a load that ends
# the zygote is not left out, and its death counts like any other.
_MOST_BYTES = 64 * 1024


class BrokenLoads:
    """Broken loads of one pool, until its functions are loaded again."""

    def __init__(self) -> None:
        self._faults: dict[Load, str] = {}
        self._size_bytes = 0
        self._ended: set[Load] = set()
        """Broken loads that have ended a zygote. They can end another one only by falsifying its loading note."""
        self._suspect: Load | None = None
        """Load that ran when the last zygote was killed, perhaps from outside."""

    @property
    def faults(self) -> Mapping[Load, str]:
        """Why each load is left out, for callers of its functions."""
        return self._faults

    def exceeded(self, load: Load, reason: str) -> None:
        """Leave out a load from now on, because it has exceeded its time or memory."""
        self._leave_out(load, reason)

    def ended(self, load: Load | None, code: int) -> str:
        """Leave out the load that has ended its zygote; returns its fault.

        The fault is empty if the load is not to blame, or if there are too many faults.
        """
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
        """Forget all faults, because the functions are being reloaded."""
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
