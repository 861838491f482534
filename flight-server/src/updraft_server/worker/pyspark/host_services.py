# SPDX-License-Identifier: Apache-2.0
"""Services of Spark's process that PySpark's worker calls over loopback: barrier stages and the state of streams.

In a worker exchange, these calls travel through the exchange. PySpark opens sockets for these calls in a few places,
which `HostServices` patches. Workers do not see the secrets of these services: the client authenticates for the worker.
"""

import contextlib
import functools
import io
import types
from collections.abc import Iterator
from typing import Any

import pyspark.taskcontext
import pyspark.util

from updraft_server.worker.pyspark.connections import ByteStream, Connections

try:
    from pyspark.sql.streaming import stateful_processor_api_client
except ImportError:  # before Spark 4.0, or without pandas
    stateful_processor_api_client = None

_BUFFER_BYTES = 64 * 1024


class HostSocket:
    """Replacement for a socket of PySpark's worker, which uses one connection of the exchange."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._number: int | None = None

    def connect(self, address: str | tuple[str, int]) -> None:
        """Open the connection to a port or a path that Spark has sent to the worker."""
        self._number = self._connections.open(address if isinstance(address, str) else str(address[1]))

    def makefile(self, _mode: str, _buffering: int = _BUFFER_BYTES) -> io.BufferedRWPair:
        """Return the connection as a buffered binary file."""
        stream = self._stream
        return io.BufferedRWPair(stream, stream, _BUFFER_BYTES)

    @property
    def _stream(self) -> ByteStream:
        assert self._number is not None, "the socket is not connected"
        return ByteStream(self._connections, self._number)

    def settimeout(self, _seconds: float | None) -> None:
        """Do nothing: the exchange has its own limits."""

    def setsockopt(self, *_option: Any) -> None:
        """Do nothing: a connection of the exchange has no socket options."""

    def close(self) -> None:
        """End the connection. Idempotent."""
        if self._number is not None:
            self._connections.end(self._number)
            self._number = None


class StateSocket(HostSocket):
    """Replacement for the socket to the state server."""

    def makefile(self, _mode: str, _buffering: int = _BUFFER_BYTES) -> io.BufferedRWPair:
        """Return the connection as a file that collects requests."""
        # Import only here: only transformWithState needs PySpark's messages, which need a matching version of protobuf.
        from updraft_server.worker.pyspark.state_calls import StateFile

        return StateFile(self._stream)


class HostServices:
    """Patches of the places where PySpark's worker connects to Spark's process."""

    def __init__(self) -> None:
        """Patch PySpark. Outside `reached_by`, everything works as before."""
        self._connections: Connections | None = None
        self._wrap_local_connect(pyspark.taskcontext)
        if stateful_processor_api_client is not None:
            self._wrap_socket(stateful_processor_api_client)

    @contextlib.contextmanager
    def reached_by(self, connections: Connections) -> Iterator[None]:
        """Let PySpark's worker reach the services through these connections during the block."""
        self._connections = connections
        try:
            yield
        finally:
            self._connections = None

    def _wrap_local_connect(self, module: Any) -> None:
        stock = module.local_connect_and_auth

        @functools.wraps(stock)
        def local_connect_and_auth(address: Any, secret: Any) -> Any:
            if self._connections is None:
                return stock(address, secret)
            sock = HostSocket(self._connections)
            sock.connect(str(address))
            return sock.makefile("rwb"), sock

        module.local_connect_and_auth = local_connect_and_auth

    def _wrap_socket(self, module: Any) -> None:
        stock = module.socket

        def new_socket(*arguments: Any) -> Any:
            return stock.socket(*arguments) if self._connections is None else StateSocket(self._connections)

        patched = types.ModuleType(stock.__name__, stock.__doc__)
        patched.__dict__.update(stock.__dict__, socket=new_socket)
        module.socket = patched
