# SPDX-License-Identifier: Apache-2.0
"""Directory of a front's segments, which follows from its Unix socket.

Clients of the socket see its directory under the same path. Where that directory is not in memory, they share /dev/shm
with the front.
"""

import hashlib
import os
from pathlib import Path

from updraft_server.sandbox_layers import SHARED_MEMORY_PATH

_MOUNTS = Path("/proc/self/mountinfo")


def segments_directory(listen_unix: Path | None) -> Path | None:
    """Return the directory for the front that listens on this socket; None without a socket or a place in memory."""
    if listen_unix is None:
        return None
    socket = listen_unix.absolute()
    if _is_in_memory(socket.parent):
        return socket.with_name(f"{socket.name}.segments")
    if os.access(SHARED_MEMORY_PATH, os.W_OK | os.X_OK):
        digest = hashlib.sha256(os.fsencode(socket)).hexdigest()
        return Path(SHARED_MEMORY_PATH) / f"updraft-segments-{digest[:32]}"
    return None


def _is_in_memory(directory: Path) -> bool:
    try:
        device = directory.stat().st_dev
        mounts = _MOUNTS.read_text().splitlines()
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(fields[2] == number and fields[fields.index("-") + 1] == "tmpfs" for fields in map(str.split, mounts))
