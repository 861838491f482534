# SPDX-License-Identifier: Apache-2.0
"""TCP proxy between client and pool that can delay data, cut connections, half-close them and drop all data."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Self

_PIECE_BYTES = 1 << 16
_LINGER_ZERO = struct.pack("ii", 1, 0)


class Proxy:
    """Proxy between client and pool; a context manager. `connect` opens connections to the pool."""

    def __init__(self, address: str, connect: Callable[[str], socket.socket] | None = None) -> None:
        self._target = address
        self._connect = connect or _connected
        self.delay_seconds = 0.0
        """Delay of every piece, in both directions."""
        self.piece_bytes = _PIECE_BYTES
        self.swallows = threading.Event()
        """While it is set, the proxy reads all data and drops it."""
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def reset(self) -> None:
        """Cut every connection with RST, on both sides."""
        for one in self._sockets():
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
                one.shutdown(socket.SHUT_RD)
                one.close()

    def close_in_order(self) -> None:
        """End every connection with FIN, on both sides."""
        for one in self._sockets():
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close_towards_pool(self) -> None:
        """Half-close the connections to the pool with FIN, and keep forwarding the pool's replies."""
        for _, server in self._pairs:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)

    def close_towards_client(self) -> None:
        """Half-close the connections to the client with FIN, and keep forwarding the client's data."""
        for client, _ in self._pairs:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_WR)

    def _sockets(self) -> list[socket.socket]:
        return [one for pair in self._pairs for one in pair]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = self._connect(self._target)
            except OSError:
                return
            self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(self.piece_bytes):
                if self.delay_seconds:
                    time.sleep(self.delay_seconds)
                if not self.swallows.is_set():
                    target.sendall(piece)
            if not self.swallows.is_set():
                target.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Without the shutdown, a closed listener accepts one more connection.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_in_order()
        for one in self._sockets():
            one.close()


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))
