# SPDX-License-Identifier: Apache-2.0
"""Where the front gets its connections to zygotes from: PID 1 of the workers' side hands them over, one each.

The front's side owns the address. It takes one control connection at a time, the first of which is made before any
user code runs on the workers' side. Whoever connects beside it is hung up on; who connects after it, as to the next
front, has to know the secret that the first one told.
"""

import asyncio
import contextlib
import socket
from typing import Protocol

import structlog

from updraft_server.ipc.control import MAX_HANDOVER_BYTES, SECRET_BYTES, KnownSide, take

_log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 0.5
_GREETING_SECONDS = 1.0
_MOST_STRANGERS = 16
# Many times what the workers' side takes to notice that its front is lost, to end what runs there, and to connect.
_KNOWN_SECONDS = 5.0


class ZygoteSource(Protocol):
    """Gives one connection after the other."""

    async def next(self) -> socket.socket:
        """The connection to the next zygote; raises OSError when none comes soon, to be asked again."""


class ControlConnection:
    """The connection to PID 1 of the workers' side: an inherited one, or the one that a listener accepts.

    It is watched all the time: with PID 1 goes the zygote that it handed over, and a successor may connect.
    """

    def __init__(self, inherited: socket.socket, known: KnownSide | None = None) -> None:
        """Use it from the running event loop.

        Args:
            inherited: The connection itself, or the listener for it.
            known: Whom the listener's front believes; None for a connection.
        """
        self._loop = asyncio.get_running_loop()
        self._control: socket.socket | None = None
        self._coming: socket.socket | None = None
        """The newest zygote's, until it is asked for."""
        self._given: socket.socket | None = None
        self._has_come = asyncio.Event()
        inherited.settimeout(0)
        self._known = known
        self._strangers: dict[socket.socket, asyncio.TimerHandle] = {}
        """Who has connected and not yet said a secret, and until when."""
        self._believing: asyncio.TimerHandle | None = None
        """When anybody is believed, if the known side does not come; None while it is here, or anybody is."""
        self._is_listening = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        if self._is_listening:
            self._loop.add_reader(inherited.fileno(), self._accept, inherited)
            self._wait_for_the_known()
        else:
            self._take(inherited)

    async def next(self) -> socket.socket:
        """The next zygote's; raises OSError when none comes soon."""
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
        """Let go of everything but what was inherited. Idempotent."""
        for stranger in list(self._strangers):
            self._turn_away(stranger)
        if self._control is not None:
            self._lose(self._control, has_ended=False)
        if self._believing is not None:
            self._believing.cancel()
            self._believing = None

    def _accept(self, listener: socket.socket) -> None:
        if self._control is not None:
            # Of two events in one turn of the loop, the end of the predecessor may come second.
            self._read()
        try:
            connection, _ = listener.accept()
        except OSError:
            # Who came has gone again.
            return
        if self._control is not None or len(self._strangers) >= _MOST_STRANGERS:
            _log.warning("a second connection to the front was refused")
            connection.close()
            return
        connection.settimeout(0)
        self._strangers[connection] = self._loop.call_later(_GREETING_SECONDS, self._turn_away, connection)
        self._loop.add_reader(connection.fileno(), self._greet, connection)
        self._greet(connection)

    def _greet(self, stranger: socket.socket) -> None:
        """Take who says the right secret."""
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
        _log.warning("a connection to the front was refused: it is not from the known workers' side")
        self._strangers.pop(stranger).cancel()
        self._loop.remove_reader(stranger.fileno())
        stranger.close()

    def _wait_for_the_known(self) -> None:
        """Believe anybody again when the known side has had the time to come, and so to end whatever ran beside it."""
        if self._known is not None and not self._known.is_anybody:
            self._believing = self._loop.call_later(_KNOWN_SECONDS, self._known.forget)

    def _take(self, control: socket.socket) -> None:
        control.settimeout(0)
        self._control = control
        self._loop.add_reader(control.fileno(), self._read)

    def _read(self) -> None:
        """Take what has been handed over, up to the end of the connection if that has come."""
        while self._control is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._control, MAX_HANDOVER_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                # It lives perhaps; so does what runs beside it.
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
            # With PID 1 all that ran there.
            self._known.forget()
        else:
            self._wait_for_the_known()
        self._loop.remove_reader(control.fileno())
        control.close()
        self._control = None
        self._forget_coming()
        if self._given is not None:
            # A zygote without its PID 1 is of no use, even one that does not notice; its user has closed it, or sees
            # its end now.
            with contextlib.suppress(OSError):
                self._given.shutdown(socket.SHUT_RDWR)
            self._given = None

    def _forget_coming(self) -> None:
        if self._coming is not None:
            self._coming.close()
            self._coming = None
        self._has_come.clear()
