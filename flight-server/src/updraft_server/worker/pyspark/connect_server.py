# SPDX-License-Identifier: Apache-2.0
"""The Spark Connect server, as the modules for foreachBatch and listeners reach it through their worker exchange.

PySpark's client of Spark Connect speaks gRPC, so it needs an address. It gets that of an abstract Unix socket on which
this process listens for itself. Sessions and channels stay in this process, so it serves no further exchange.
"""

import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from updraft.errors import UpdraftError
from updraft_server.worker.pyspark.shared_connections import SharedConnections

CONNECT_MODULES = "pyspark.sql.connect.streaming.worker."
"""Prefix of the names of the modules whose functions have a session of Spark Connect."""

_URL = "SPARK_CONNECT_LOCAL_URL"
_READ_BYTES = 256 * 1024
_CREDENTIALS = struct.Struct("3i")


class ConnectServer:
    """Unix socket whose connections lead to the Connect server at the URL in the environment."""

    def __init__(self, connections: SharedConnections) -> None:
        """Listen, and let PySpark's channels to that URL connect here."""
        self._connections = connections
        url = urlsplit(os.environ[_URL])
        self._address = str(url.port)
        self._name = f"updraft-connect-{secrets.token_hex(16)}"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(f"\0{self._name}")
        self._listening.listen()
        _redirect_channels(url.netloc, f"unix-abstract:{self._name}")
        threading.Thread(target=self._accept, name="connect-server", daemon=True).start()

    def _accept(self) -> None:
        # Without descriptors, or once the exchange has failed, PySpark's client shall fail instead of waiting.
        with self._listening, suppress(OSError, UpdraftError):
            while True:
                accepted, _ = self._listening.accept()
                if _peer(accepted) == os.getpid():
                    self._carry(accepted, self._connections.open(self._address))
                else:
                    # Another process must not use this session.
                    accepted.close()

    def _carry(self, accepted: socket.socket, number: int) -> None:
        for carry in (self._to_server, self._to_client):
            threading.Thread(target=carry, args=(accepted, number), name="connect-server", daemon=True).start()

    def _to_server(self, accepted: socket.socket, number: int) -> None:
        with suppress(OSError, UpdraftError):
            while data := accepted.recv(_READ_BYTES):
                self._connections.send(number, data)
        with suppress(UpdraftError):
            self._connections.end(number)

    def _to_client(self, accepted: socket.socket, number: int) -> None:
        with suppress(OSError, UpdraftError):
            while piece := self._connections.receive(number):
                accepted.sendall(piece)
        with suppress(OSError):
            accepted.shutdown(socket.SHUT_RDWR)
        accepted.close()


def _peer(connection: socket.socket) -> int:
    """Return the id of the process at the other end."""
    pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(pid)


def _redirect_channels(endpoint: str, target: str) -> None:
    """Let PySpark's channels to `endpoint` connect to `target`."""
    import grpc
    from pyspark.sql.connect.client.core import ChannelBuilder

    insecure, secure = ChannelBuilder._insecure_channel, ChannelBuilder._secure_channel

    def insecure_channel(builder: Any, wanted: str, **options: Any) -> Any:
        return insecure(builder, target if wanted == endpoint else wanted, **options)

    def secure_channel(builder: Any, wanted: str, credentials: Any, **options: Any) -> Any:
        if wanted != endpoint:
            return secure(builder, wanted, credentials, **options)
        # PySpark's credentials are for a local TCP connection.
        local = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        token = grpc.access_token_call_credentials(builder.token)
        return secure(builder, target, grpc.composite_channel_credentials(local, token), **options)

    ChannelBuilder._insecure_channel, ChannelBuilder._secure_channel = insecure_channel, secure_channel
