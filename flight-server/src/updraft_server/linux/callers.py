# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end of a Unix socket."""

import socket
import struct
from collections.abc import Collection

from updraft_server.linux.process_trees import parents

_CREDENTIALS = struct.Struct("3i")


def descends_from(connection: socket.socket, ancestors: Collection[int]) -> bool:
    """Whether the process that connected is one of `ancestors` or was started by one, or is gone already.

    False for a process in a PID namespace that this one cannot see. Reads all of /proc.
    """
    size = _CREDENTIALS.size
    pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if pid == 0:
        return False
    known = parents()
    if pid not in known:
        return True
    while pid not in ancestors and pid in known:
        pid = known[pid]
    return pid in ancestors
