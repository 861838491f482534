# SPDX-License-Identifier: Apache-2.0
"""Source of zygotes that a test plays at a path."""

import socket
from pathlib import Path


class ZygotesAt:
    """Source that connects to whatever listens at the path."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def next(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        return connection
