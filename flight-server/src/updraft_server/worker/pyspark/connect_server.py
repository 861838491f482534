# SPDX-License-Identifier: Apache-2.0
"""Access to the Spark Connect server through a worker exchange, for foreachBatch and listeners.

PySpark's client of Spark Connect speaks gRPC, so it needs an address. `ConnectServer` redirects the client to an
abstract Unix socket, which accepts only connections from this process. The client's sessions and channels stay in the
process, so the pool replaces the worker after the exchange.
"""

import errno
import os
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from updraft.errors import FunctionRefusedError, ProtocolError, UpdraftError
from updraft_server.worker.pyspark.shared_connections import SharedConnections

CONNECT_MODULES = "pyspark.sql.connect.streaming.worker."
"""Name prefix of the worker modules that use a Spark Connect session."""

_URL = "SPARK_CONNECT_LOCAL_URL"
_READ_BYTES = 256 * 1024
_CREDENTIALS = struct.Struct("3i")
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED)
_SHORTAGE_SECONDS = 0.1


class ConnectServer:
    """Unix socket whose connections lead to the Connect server at the URL in the environment."""

    def __init__(self, connections: SharedConnections) -> None:
        """Listen, and redirect PySpark's channels for that URL to this socket; raises UpdraftError."""
        self._connections = connections
        port = _port(os.environ.get(_URL, ""))
        self._address = str(port)
        self._name = f"updraft-connect-{secrets.token_hex(16)}"
        try:
            self._listening = socket.socket(socket.AF_UNIX)
        except PermissionError:
            raise FunctionRefusedError(
                "functions of this pool cannot use a Spark Connect session, because they may open no socket: it was "
                "started with --profile restricted"
            ) from None
        self._listening.bind(f"\0{self._name}")
        self._listening.listen()
        _redirect_channels(port, f"unix-abstract:{self._name}")
        threading.Thread(target=self._accept, name="connect-server", daemon=True).start()

    def _accept(self) -> None:
        with self._listening:
            while True:
                try:
                    accepted, _ = self._listening.accept()
                except OSError as error:
                    if error.errno not in _SHORTAGES:
                        return
                    # The process has no free descriptors or memory. Poll, because no event reports when some are free.
                    time.sleep(_SHORTAGE_SECONDS)
                    continue
                # Accept only this process: no other process may use the session.
                if _peer(accepted) == os.getpid():
                    self._serve(accepted)
                else:
                    accepted.close()

    def _serve(self, accepted: socket.socket) -> None:
        """Open a connection of the exchange, and start two threads to carry its bytes. Close `accepted` on failure."""
        number = None
        try:
            number = self._connections.open(self._address)
            for carry in (self._to_server, self._to_client):
                threading.Thread(target=carry, args=(accepted, number), name="connect-server", daemon=True).start()
        except (UpdraftError, RuntimeError, MemoryError):
            _shut(accepted)
            accepted.close()
            if number is not None:
                with suppress(UpdraftError):
                    self._connections.end(number)

    def _to_server(self, accepted: socket.socket, number: int) -> None:
        try:
            while data := accepted.recv(_READ_BYTES):
                self._connections.send(number, data)
        except (OSError, UpdraftError, MemoryError):
            _shut(accepted)
        finally:
            with suppress(UpdraftError):
                self._connections.end(number)

    def _to_client(self, accepted: socket.socket, number: int) -> None:
        try:
            while piece := self._connections.receive(number):
                accepted.sendall(piece)
        except (OSError, UpdraftError):
            # The shutdown below shows PySpark's client that the connection has ended.
            return
        finally:
            _shut(accepted)
            accepted.close()


def _port(url: str) -> int:
    try:
        port = urlsplit(url).port
    except ValueError:
        port = None
    if port is None:
        raise ProtocolError(f"{_URL} has no port of a Spark Connect server: {url!r}")
    return port


def _shut(accepted: socket.socket) -> None:
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


def _peer(connection: socket.socket) -> int:
    """Return the id of the process at the other end."""
    pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(pid)


def _redirect_channels(port: int, target: str) -> None:
    """Redirect PySpark's channels for a port of this machine to `target`."""
    from pyspark.sql.connect.client import core

    # Use the gRPC module that PySpark has just imported: a worker loads gRPC only when it needs PySpark's client.
    grpc, builders = core.grpc, core.ChannelBuilder
    endpoints = [f"{host}:{port}" for host in ("localhost", "127.0.0.1", "[::1]")]
    insecure, secure = builders._insecure_channel, builders._secure_channel

    def insecure_channel(builder: Any, wanted: str, **options: Any) -> Any:
        return insecure(builder, target if wanted in endpoints else wanted, **options)

    def secure_channel(builder: Any, wanted: str, credentials: Any, **options: Any) -> Any:
        if wanted not in endpoints:
            return secure(builder, wanted, credentials, **options)
        # Replace PySpark's credentials, which work only on a local TCP connection.
        local = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        token = grpc.access_token_call_credentials(builder.token)
        return secure(builder, target, grpc.composite_channel_credentials(local, token), **options)

    builders._insecure_channel, builders._secure_channel = insecure_channel, secure_channel
