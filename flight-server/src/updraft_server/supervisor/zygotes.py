# SPDX-License-Identifier: Apache-2.0
"""Zygotes of a supervisor: the serving zygote, a zygote that loads functions again, and retired zygotes.

All zygotes are children of the supervisor, which watches and reaps them. If loading a module or function crashes or
hangs a zygote, the pool continues without that module or function.
"""

import dataclasses
import json
import signal
import socket

from updraft.service.child import Child, describe_exit
from updraft_server.ipc.control import packet_pair, refuse_reload
from updraft_server.ipc.load import Load
from updraft_server.ipc.zygote_packets import ZygoteSettings
from updraft_server.supervisor.stderr import say
from updraft_server.supervisor.zygote_child import ZygoteChild, start_zygote

# A first SIGKILL may be no fault of the zygote: the kernel may have killed it because memory ran out. If a second
# zygote is killed during the same load, the pool considers that load the cause.
_OTHERS_KILL = -signal.SIGKILL
# A zygote receives the faults in an environment variable, which holds at most 128 KiB. If the faults would exceed this
# size, a load that crashes the zygote is not left out, and the zygote's death is counted as a crash.
_MOST_BYTES = 64 * 1024


class BrokenLoads:
    """Broken loads of one pool. Zygotes leave these loads out until the functions are reloaded."""

    def __init__(self) -> None:
        self.faults: dict[Load, str] = {}
        self._size_bytes = 0
        self._ended: set[Load] = set()
        """Broken loads that have crashed a zygote. Later zygotes leave these loads out, so if the note of a later
        zygote names such a load, the note is false."""
        self._suspect: Load | None = None
        """Load that ran when the last zygote was killed, perhaps from outside."""

    def exceeded(self, load: Load, reason: str) -> None:
        """Leave out a load from now on, because it has exceeded its time or memory."""
        self._leave_out(load, reason)

    def ended(self, load: Load | None, code: int) -> str:
        """Leave out the load that has crashed its zygote from now on; returns the load's fault.

        The fault is empty if the load is not to blame, or if there are too many faults.
        """
        is_certain = code != _OTHERS_KILL or load == self._suspect or load in self.faults
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
        self.faults.clear()
        self._ended.clear()
        self._size_bytes = 0
        self._suspect = None

    def _leave_out(self, load: Load, reason: str) -> str:
        fault = load.fault(reason)
        if load not in self.faults:
            size_bytes = self._size_bytes + len(json.dumps([dataclasses.asdict(load), fault]))
            if size_bytes > _MOST_BYTES:
                return ""
            self._size_bytes = size_bytes
        return self.faults.setdefault(load, fault)


FRONT = "front"
ZYGOTE = "zygote"
"""Name of the zygote that serves."""
_SUCCESSOR = "next zygote"


class Zygotes:
    """Zygotes, of which one serves until a successor has loaded the functions and takes its place."""

    def __init__(self, settings: ZygoteSettings, children: dict[str, Child]) -> None:
        """Prepare to start zygotes.

        Args:
            settings: Settings of each zygote.
            children: The supervisor's children, by their names.
        """
        self.settings = settings
        self.zygote_socket: socket.socket | None = None
        """Socket to the zygote that serves; None if no zygote can be connected to a front."""
        self._children = children
        self._successors_socket: socket.socket | None = None
        self._generation = 0
        """Number of times that functions have been reloaded."""
        self._broken_loads = BrokenLoads()

    def start(self) -> None:
        """Start a serving zygote, perhaps in place of a zygote that has ended."""
        # A successor is not needed any more, because the new zygote loads the current code.
        self.drop_successor()
        self.close_socket()
        # Retired zygotes still serve the models of their workers.
        has_retired = bool(self._children.keys() - {FRONT, ZYGOTE})
        self.zygote_socket, zygotes_end = packet_pair()
        with zygotes_end:
            self._children[ZYGOTE] = start_zygote(self._as_now(is_successor=has_retired), zygotes_end)

    def reload(self) -> None:
        """Start a zygote that loads the current functions; the previous zygote serves until the new zygote is ready."""
        self.drop_successor()
        self._broken_loads.forget()
        self._generation += 1
        self._start_successor()

    def succeed(self) -> bool:
        """Let the successor serve if it has reloaded the functions; returns True if the front must connect to it.

        The previous zygote then retires: it forks no more workers, and ends with the last worker that it has forked.
        But if the new code has a fault that the previous code lacks, the previous zygote continues to serve. So a typo
        makes no function unavailable.
        """
        successor = self._children.get(_SUCCESSOR)
        if successor is None or not successor.has_started:
            return False
        if faults := _new_faults(successor, self._children[ZYGOTE]):
            self.drop_successor()
            say(f"the functions were not reloaded, and the previous ones stay in use: {'; '.join(faults)}")
            if self.zygote_socket is not None:
                refuse_reload(self.zygote_socket, "; ".join(faults))
            return False
        retired = self._children.pop(ZYGOTE)
        self._children[f"retired zygote {retired.pid}"] = retired
        self._children[ZYGOTE] = self._children.pop(_SUCCESSOR)
        self.close_socket()
        self.zygote_socket, self._successors_socket = self._successors_socket, None
        return True

    def kill_excessive(self, name: str, child: Child) -> bool:
        """Kill a zygote whose load exceeds a limit, and leave that load out from now on; returns True if killed."""
        excess = child.watch.excess if isinstance(child, ZygoteChild) else None
        if excess is None:
            return False
        self._broken_loads.exceeded(excess.load, excess.reason)
        say(f"killing the {name}: {excess.load.fault(excess.reason)}")
        child.kill()
        return True

    @property
    def is_running_code(self) -> bool:
        """Whether the serving zygote ran an author's code at the last check, or when it ended."""
        return _load_of(self._children[ZYGOTE]) is not None

    def ended(self, code: int) -> str:
        """Handle the end of the serving zygote; returns the fault of a load that is now left out, or an empty text."""
        return self._broken_loads.ended(_load_of(self._children[ZYGOTE]), code)

    def other_ended(self, name: str, code: int, *, is_wanted: bool) -> bool:
        """Handle the end of a zygote that does not serve; returns whether it leaves living workers behind.

        Args:
            name: Name of the zygote.
            code: Exit code, or minus the signal.
            is_wanted: Whether the reload is still wanted.
        """
        zygote = self._children.pop(name)
        if name != _SUCCESSOR:
            if code:
                say(f"the {name} {describe_exit(code)}")
            return bool(code)
        self.drop_successor()
        if not (fault := self._broken_loads.ended(_load_of(zygote), code)):
            say(f"the {name} {describe_exit(code)} while it loaded the functions: the previous ones stay in use")
        elif is_wanted:
            say(f"{fault}: starting another {name} without it")
            self._start_successor()
        return False

    def drop_successor(self) -> None:
        """End a successor that has not taken over yet, if there is one."""
        if self._successors_socket is not None:
            self._successors_socket.close()
            self._successors_socket = None
        successor = self._children.pop(_SUCCESSOR, None)
        if successor is not None:
            successor.kill()
            successor.forget()

    def close_socket(self) -> None:
        """Close the socket to the serving zygote, so that no further front is connected to that zygote."""
        if self.zygote_socket is not None:
            self.zygote_socket.close()
            self.zygote_socket = None

    def _start_successor(self) -> None:
        try:
            self._successors_socket, zygotes_end = packet_pair()
            with zygotes_end:
                self._children[_SUCCESSOR] = start_zygote(self._as_now(is_successor=True), zygotes_end)
        except OSError as error:
            self.drop_successor()
            say(f"the {_SUCCESSOR} cannot be started: {error.strerror}: the previous functions stay in use")

    def _as_now(self, *, is_successor: bool) -> ZygoteSettings:
        """Return the settings of a zygote that is started now."""
        return dataclasses.replace(
            self.settings,
            generation=self._generation,
            is_successor=is_successor,
            broken_loads=list(self._broken_loads.faults.items()),
        )


def _new_faults(successor: Child, serving: Child) -> list[str]:
    """Return the faults that only the successor has."""
    if not isinstance(successor, ZygoteChild) or not isinstance(serving, ZygoteChild):
        return []
    known = serving.faults
    return [fault for name, fault in successor.faults.items() if name not in known]


def _load_of(zygote: Child) -> Load | None:
    """Return the load that ran at the last check, or when the zygote ended."""
    return zygote.watch.load if isinstance(zygote, ZygoteChild) else None
