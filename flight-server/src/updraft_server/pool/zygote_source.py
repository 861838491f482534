# SPDX-License-Identifier: Apache-2.0
"""Source of the front's connections to zygotes: PID 1 of the workers' side hands over one connection for each zygote.

The front's side owns the address and accepts one control connection at a time. The workers' side makes the first
connection before it runs any user code. While the front has a connection, it refuses a second one. A later connection,
for example to the next front, must send the same secret as the first.
"""

import asyncio
import contextlib
import socket
from typing import Protocol

import structlog

from updraft_server.ipc.control import MAX_HANDOVER_BYTES, SECRET_BYTES, WorkersSecret, take

_log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 0.5
_GREETING_SECONDS = 1.0
_MOST_STRANGERS = 16
# Time in which only the known workers' side may connect again. That side needs much less time to notice a lost front,
# end all user code, and connect.
_KNOWN_SECONDS = 5.0


class ZygoteSource(Protocol):
    """Source of connections to zygotes, one after the other."""

    async def next(self) -> socket.socket:
        """Return the connection to the next zygote; raises OSError if none arrives soon. The caller may then retry."""


class ControlConnection:
    """Connection to PID 1 of the workers' side: an inherited connection, or the connection that a listener accepts.

    The event loop watches the connection all the time. When PID 1 ends, the zygote that it handed over ends too, and a
    successor of PID 1 may connect.
    """

    def __init__(self, inherited: socket.socket, known: WorkersSecret | None = None) -> None:
        """Watch the connection or listener from the running event loop.

        Args:
            inherited: Connection, or listener that accepts it.
            known: Secret of the workers' side that a listener accepts; None if `inherited` is a connection.
        """
        self._loop = asyncio.get_running_loop()
        self._control: socket.socket | None = None
        self._coming: socket.socket | None = None
        """Connection to the newest zygote, until `next` returns it."""
        self._given: socket.socket | None = None
        self._has_come = asyncio.Event()
        inherited.settimeout(0)
        self._known = known
        self._strangers: dict[socket.socket, asyncio.TimerHandle] = {}
        """Peers that have connected but not yet sent a secret, with their timeouts."""
        self._believing: asyncio.TimerHandle | None = None
        """Timer after which any peer is accepted if the known side does not connect; None while no timer runs."""
        self._is_listening = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        if self._is_listening:
            self._loop.add_reader(inherited.fileno(), self._accept, inherited)
            self._wait_for_the_known()
        else:
            self._take(inherited)

    async def next(self) -> socket.socket:
        """Return the connection to the next zygote; raises OSError if none arrives soon."""
        if self._control is None and not self._is_listening:
            raise ConnectionResetError("the supervisor has gone away")
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._has_come.wait()
        except TimeoutError:
            is_connected = self._control is not None
            raise TimeoutError(
                "the workers' side has started no zygote yet" if is_connected else "the workers' side has not connected"
            ) from None
        self._has_come.clear()
        given, self._given, self._coming = self._coming, self._coming, None
        if given is None:
            raise ConnectionResetError("the workers' side has gone away")
        return given

    def close(self) -> None:
        """Close everything but the inherited socket. Idempotent."""
        for stranger in list(self._strangers):
            self._turn_away(stranger)
        if self._control is not None:
            self._lose(self._control, has_ended=False)
        if self._believing is not None:
            self._believing.cancel()
            self._believing = None

    def _accept(self, listener: socket.socket) -> None:
        if self._control is not None:
            # The previous connection may have ended too, in an event that the loop handles only after this event.
            self._read()
        try:
            connection, _ = listener.accept()
        except OSError:
            # The peer has hung up.
            return
        if self._control is not None or len(self._strangers) >= _MOST_STRANGERS:
            _log.warning(
                "refused a connection to the front: the workers' side is connected, or too many peers sent no secret"
            )
            connection.close()
            return
        connection.settimeout(0)
        self._strangers[connection] = self._loop.call_later(_GREETING_SECONDS, self._turn_away, connection)
        self._loop.add_reader(connection.fileno(), self._greet, connection)
        self._greet(connection)

    def _greet(self, stranger: socket.socket) -> None:
        """Accept a peer that sends the right secret."""
        try:
            secret = stranger.recv(SECRET_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            secret = b""
        if self._control is not None or self._known is None or not self._known.is_known(secret):
            self._turn_away(stranger)
            return
        self._strangers.pop(stranger).cancel()
        self._loop.remove_reader(stranger.fileno())
        if self._believing is not None:
            self._believing.cancel()
            self._believing = None
        take(stranger)
        self._take(stranger)

    def _turn_away(self, stranger: socket.socket) -> None:
        _log.warning("refused a connection to the front: it is not from the known workers' side")
        self._strangers.pop(stranger).cancel()
        self._loop.remove_reader(stranger.fileno())
        stranger.close()

    def _wait_for_the_known(self) -> None:
        """Give the known side time to end the user code that ran there and to connect. Then accept any peer again."""
        if self._known is not None and not self._known.is_anybody:
            self._believing = self._loop.call_later(_KNOWN_SECONDS, self._known.forget)

    def _take(self, control: socket.socket) -> None:
        control.settimeout(0)
        self._control = control
        self._loop.add_reader(control.fileno(), self._read)

    def _read(self) -> None:
        """Receive every connection that was handed over; drop the control connection if it has ended."""
        while self._control is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._control, MAX_HANDOVER_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                # The workers' side and its user code may still be alive.
                data, descriptors = b"?", []
            if not data or not descriptors:
                self._lose(self._control, has_ended=not data)
                return
            self._forget_coming()
            self._coming = socket.socket(fileno=descriptors[0])
            self._has_come.set()

    def _lose(self, control: socket.socket, *, has_ended: bool) -> None:
        _log.warning("the workers' side has gone away")
        if self._known is not None and has_ended:
            # All processes of the workers' side have ended with PID 1.
            self._known.forget()
        else:
            self._wait_for_the_known()
        self._loop.remove_reader(control.fileno())
        control.close()
        self._control = None
        self._forget_coming()
        if self._given is not None:
            # A zygote whose PID 1 has ended is useless, even if it does not notice. The code that received this
            # connection has closed it, or sees end of file now.
            with contextlib.suppress(OSError):
                self._given.shutdown(socket.SHUT_RDWR)
            self._given = None

    def _forget_coming(self) -> None:
        if self._coming is not None:
            self._coming.close()
            self._coming = None
        self._has_come.clear()
