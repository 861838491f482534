# SPDX-License-Identifier: Apache-2.0
"""Connections of a worker exchange for several threads, such as the threads that carry a gRPC client's bytes."""

import select
import threading

from updraft.errors import InternalError, UpdraftError
from updraft_server.ipc.frames import Buffer
from updraft_server.worker.pyspark.connections import Batches, Connections


class SharedConnections(Connections):
    """Connections with a separate thread, which receives the client's batches for all other threads.

    A lock lets one thread at a time use the exchange. The receiving thread waits for a batch without the lock, so
    senders do not wait for the client.
    """

    def __init__(self, batches: Batches, opening: bytes = b"") -> None:
        """Start the receiving thread, which stops after the client's last batch or an error."""
        super().__init__(batches, opening)
        self._changed = threading.Condition()
        self._error: UpdraftError | None = None
        threading.Thread(target=self._receive_all, name="worker-exchange", daemon=True).start()

    def open(self, address: str) -> int:
        """Open a connection to a service, by its port or path, and return the connection's number."""
        with self._changed:
            return super().open(address)

    def receive(self, number: int) -> memoryview:
        """Wait for a piece and return it; empty if the stream has ended. Raises UpdraftError."""
        with self._changed:
            self._changed.wait_for(lambda: self._unread[number] or number in self._ended or self._error is not None)
            if self._error is not None:
                raise self._error
            return super().receive(number)

    def put_back(self, number: int, piece: memoryview) -> None:
        """Put the unread rest of a piece back."""
        with self._changed:
            super().put_back(number, piece)

    def has_read(self, size: int) -> None:
        """Count bytes that were copied into the input buffer of PySpark's worker."""
        with self._changed:
            super().has_read(size)

    def send(self, number: int, data: Buffer) -> None:
        """Send bytes, in several replies if need be; raises UpdraftError."""
        with self._changed:
            super().send(number, data)

    def end(self, number: int) -> None:
        """Tell the client that nothing more comes on a connection."""
        with self._changed:
            super().end(number)

    def finish(self, unread_bytes: int) -> None:
        """Report how much the worker has read, end the runner's connection, and wait until the client ends it too."""
        with self._changed:
            super().finish(unread_bytes)

    def close(self) -> None:
        """Drop everything that is sent from now on."""
        with self._changed:
            super().close()

    def _receive_all(self) -> None:
        arrivals = select.poll()
        arrivals.register(self._batches.descriptor, select.POLLIN)
        has_more = True
        while has_more:
            try:
                with self._changed:
                    # The client may wait for this acknowledgement before it sends more.
                    self._batches.acknowledge()
                arrivals.poll()
                with self._changed:
                    has_more = self._take()
                    self._changed.notify_all()
            except BaseException as error:  # otherwise all waiting threads would hang
                with self._changed:
                    unknown = InternalError(f"the exchange cannot be read: {error!r}")
                    self._error = error if isinstance(error, UpdraftError) else unknown
                    self._changed.notify_all()
                return
