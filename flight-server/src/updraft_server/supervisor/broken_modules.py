# SPDX-License-Identifier: Apache-2.0
"""Modules of functions whose import ends the process that imports them: a pool goes on without them."""

import signal
from collections.abc import Mapping
from pathlib import Path

from updraft.service.child import describe_exit
from updraft_server.ipc.loading_note import LoadingNote

# Whoever is short of memory may kill a zygote that does nothing wrong; not twice at the same place.
_OTHERS_KILL = -signal.SIGKILL


class BrokenModules:
    """Those of one pool, until its functions are loaded again."""

    def __init__(self, note: Path) -> None:
        self.note = note
        """Where a zygote notes what it loads."""
        self._faults: dict[str, str] = {}
        self._suspect = ""
        """Was being loaded when the last zygote was killed, maybe by others."""

    @property
    def faults(self) -> Mapping[str, str]:
        """Why each of them is not imported, for whoever calls its functions."""
        return self._faults

    def zygote_ended(self, code: int) -> str:
        """The module that has ended it, if any: from now on it is one of these."""
        module = LoadingNote(self.note).take()
        is_certain = code != _OTHERS_KILL or module == self._suspect
        self._suspect = module
        if not module or not is_certain:
            return ""
        self._faults[module] = (
            f"the module {module!r} of --functions cannot be imported: the process that ran its code "
            f"{describe_exit(code)}"
        )
        return module

    def forget(self) -> None:
        """Functions are loaded as they are now."""
        self._faults.clear()
        self._suspect = ""
