# SPDX-License-Identifier: Apache-2.0
"""TCP proxy that stands for a network with a long round trip: it delays bytes, however many are under way."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from typing import Self

_PIECE_BYTES = 1 << 20


class FarNetwork:
    """Proxy to an address; a context manager.

    Every byte arrives `round_trip_seconds / 2` after it was sent, however many other bytes are in transit.
    """

    def __init__(self, address: str, round_trip_seconds: float):
        self._target = address
        self._one_way_seconds = round_trip_seconds / 2
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        """host:port of the proxy."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self._target.rpartition(":")
                server = socket.create_connection((host, int(port)))
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                    threading.Thread(target=self._receive, args=(source, pieces), daemon=True).start()
                    threading.Thread(target=self._deliver, args=(pieces, target), daemon=True).start()

    def _receive(self, source: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        piece = b"first"
        while piece:
            try:
                piece = source.recv(_PIECE_BYTES)
            except OSError:
                piece = b""
            pieces.put((time.monotonic() + self._one_way_seconds, piece))

    def _deliver(self, pieces: queue.SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, piece = pieces.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not piece:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(piece)
