# SPDX-License-Identifier: Apache-2.0
"""Directory of a front's segments, which follows from the addresses on which the front listens.

Clients of a Unix socket see its directory under the same path. Where that directory is not in memory, and for clients
of a loopback address, the directory is in /dev/shm.
"""

import hashlib
import os
from pathlib import Path

from updraft.service.addresses import TcpAddress
from updraft_server.sandbox_layers import SHARED_MEMORY_PATH

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = Path("/proc/self/ns/net")


def segments_directory(listen: TcpAddress | None, listen_unix: Path | None) -> Path | None:
    """Return the directory for the front that listens on these addresses.

    Return None if the front listens neither on a Unix socket nor on a loopback address, or if it needs /dev/shm and
    cannot write there.
    """
    if listen_unix is not None:
        socket = listen_unix.absolute()
        if _is_in_memory(socket.parent):
            return socket.with_name(f"{socket.name}.segments")
        return _in_shared_memory(os.fsencode(socket))
    if listen is not None and listen.is_loopback:
        # Pools in other network namespaces may have the same address and the same /dev/shm.
        return _in_shared_memory(f"{listen} {_network()}".encode())
    return None


def _in_shared_memory(address: bytes) -> Path | None:
    if not os.access(SHARED_MEMORY_PATH, os.W_OK | os.X_OK):
        return None
    return Path(SHARED_MEMORY_PATH) / f"updraft-segments-{hashlib.sha256(address).hexdigest()[:32]}"


def _network() -> int:
    """Return the number of this process's network namespace; 0 if it is unknown."""
    try:
        return _NETWORK.stat().st_ino
    except OSError:
        return 0


def _is_in_memory(directory: Path) -> bool:
    try:
        device = directory.stat().st_dev
        mounts = _MOUNTS.read_text().splitlines()
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(fields[2] == number and fields[fields.index("-") + 1] == "tmpfs" for fields in map(str.split, mounts))
