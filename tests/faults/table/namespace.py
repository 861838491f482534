# SPDX-License-Identifier: Apache-2.0
"""Network namespace that one virtual cable connects to this machine. A test can lose the cable's packets."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import ClassVar, Self

_CLONE_NEWNET = 0x40000000
_NAME = "updraft-faults"
_OUTER, _INNER = "updraft-f0", "updraft-f1"
_NOBODY = "02:00:00:00:00:01"


def why_not() -> str:
    """Return why this machine cannot make a network namespace; empty if it can."""
    if os.getuid() != 0:
        return "a network namespace needs root"
    if shutil.which("ip") is None:
        return "a network namespace needs the program ip"
    made = subprocess.run(["ip", "netns", "add", f"{_NAME}-probe"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", f"{_NAME}-probe"], check=True)
    return ""


class Namespace:
    """Network namespace; a context manager. `connected` opens connections from inside the namespace."""

    POOL_HOST: ClassVar[str] = "10.213.77.1"
    _CLIENT_HOST = "10.213.77.2"

    def connected(self, address: str) -> socket.socket:
        """Connect from the namespace, in a separate thread, because a thread cannot always leave a namespace."""
        host, _, port = address.rpartition(":")
        made: list[socket.socket] = []

        def connect() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with Path("/run/netns", _NAME).open("rb") as space:
                if libc.setns(space.fileno(), _CLONE_NEWNET) != 0:
                    return
            made.append(socket.create_connection((host, int(port))))

        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
        if not made:
            raise OSError(f"no connection from {_NAME} to {address}")
        return made[0]

    def lose_everything(self) -> None:
        """From now on, send the packets of both sides to a machine that does not exist."""
        _ip("neighbour", "replace", self._CLIENT_HOST, "lladdr", _NOBODY, "nud", "permanent", "dev", _OUTER)
        inner = ("neighbour", "replace", self.POOL_HOST, "lladdr", _NOBODY, "nud", "permanent", "dev", _INNER)
        _ip("-netns", _NAME, *inner)

    def __enter__(self) -> Self:
        _ip("netns", "add", _NAME)
        try:
            _ip("link", "add", _OUTER, "type", "veth", "peer", "name", _INNER, "netns", _NAME)
            _ip("address", "add", f"{self.POOL_HOST}/30", "dev", _OUTER)
            _ip("link", "set", _OUTER, "up")
            _ip("-netns", _NAME, "address", "add", f"{self._CLIENT_HOST}/30", "dev", _INNER)
            _ip("-netns", _NAME, "link", "set", _INNER, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _ip("netns", "delete", _NAME)
        # Deleting the namespace also removes this end of the cable, but not at once.
        subprocess.run(["ip", "link", "delete", _OUTER], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
