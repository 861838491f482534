# SPDX-License-Identifier: Apache-2.0
"""Connections between zygotes and fronts: a supervisor makes a pair of sockets and hands each side one end.

Zygotes have no address, so a function in a worker cannot connect to a zygote.
"""

import contextlib
import enum
import hmac
import os
import secrets
import socket
from pathlib import Path

KNOWN_VARIABLE = "UPDRAFT_FRONT_KNOWN"
"""Environment variable: descriptor of the `WorkersSecret` that the front's supervisor shares with its fronts."""
CONTROL_VARIABLE = "UPDRAFT_FRONT_CONTROL"
"""Environment variable: the front's descriptor of its control connection, or of the listener that accepts one."""
MAX_HANDOVER_BYTES = 32
SECRET_BYTES = 32
MAX_FAULT_BYTES = 4 * 1024
_REFUSAL = b"refused "
_BACKLOG = 16
_GROUP_MAY_CONNECT = 0o660


def packet_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that send whole packets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def connect_both(zygote: socket.socket, control: socket.socket, front_pid: int) -> None:
    """Make a new connection between a zygote and a front, and send each of them its end.

    If one side has ended or does not read, the other side finds that its new connection is closed, and handles this.

    Args:
        zygote: Socket to the zygote.
        control: Socket to the front.
        front_pid: Process id of the front; 0 if the front and the zygote are in different PID namespaces.
    """
    front_end, zygote_end = packet_pair()
    with front_end, zygote_end:
        for to, content, end in ((zygote, str(front_pid).encode(), zygote_end), (control, b"zygote", front_end)):
            with contextlib.suppress(OSError):
                socket.send_fds(to, [content], [end.fileno()], socket.MSG_DONTWAIT)


def refuse_reload(zygote: socket.socket, fault: str) -> None:
    """Report to a zygote, over the socket `zygote`, why a reload was refused. The zygote tells its fronts."""
    with contextlib.suppress(OSError):
        zygote.send(_REFUSAL + fault.encode(errors="replace")[:MAX_FAULT_BYTES], socket.MSG_DONTWAIT)


def receive_front(zygote: socket.socket) -> tuple[socket.socket, int] | str | None:
    """Receive one message from the supervisor.

    Returns:
        A front's socket with the front's process id (0 if it is in another PID namespace), or the reason why a reload
        was refused, or None if the supervisor has closed the connection.
    """
    data, descriptors, _, _ = socket.recv_fds(zygote, len(_REFUSAL) + MAX_FAULT_BYTES, 1)
    if data.startswith(_REFUSAL):
        return data.removeprefix(_REFUSAL).decode(errors="ignore")
    if not data or not descriptors:
        return None
    return socket.socket(fileno=descriptors[0]), int(data)


class WorkersSecret:
    """Secret by which every front of a supervisor recognises PID 1 of the workers' side.

    PID 1 sends the secret before any user code runs on its side, so no other process can connect that early. Later,
    after one front has ended and before the next front starts, user code can connect, but does not know the secret.
    """

    def __init__(self, descriptor: int) -> None:
        """Use memory that a supervisor shares with its fronts."""
        self.descriptor = descriptor

    @classmethod
    def made(cls, *, somebody: bool) -> "WorkersSecret":
        """Return a new secret for a supervisor.

        `somebody` means that a workers' side of an earlier supervisor may still run. With the new secret, the front
        then accepts no side until `forget` is called.
        """
        known = cls(os.memfd_create("updraft-known"))
        if somebody:
            os.pwrite(known.descriptor, new_secret(), 0)
        return known

    @property
    def is_anybody(self) -> bool:
        """Whether the front accepts the next workers' side that connects, whatever secret that side sends."""
        return os.fstat(self.descriptor).st_size == 0

    def is_known(self, secret: bytes) -> bool:
        """Return whether this is the known side's secret. If no side is known, make the sender the known side."""
        if len(secret) != SECRET_BYTES:
            return False
        if self.is_anybody:
            os.pwrite(self.descriptor, secret, 0)
        return hmac.compare_digest(os.pread(self.descriptor, SECRET_BYTES, 0), secret)

    def forget(self) -> None:
        """Forget the known side, after PID 1 and all other processes of that side have ended."""
        os.ftruncate(self.descriptor, 0)


def new_secret() -> bytes:
    """Return a secret that PID 1 of a workers' side sends to every front."""
    return secrets.token_bytes(SECRET_BYTES)


class Greeting(enum.Enum):
    """Answer that a front has given to a connection so far."""

    NONE = "nothing yet"
    TAKEN = "taken"
    GONE = "refused, or gone"


def greeting(control: socket.socket) -> Greeting:
    """Return what the front has answered since the last call. A front's only answer is the one that `take` sends."""
    try:
        return Greeting.TAKEN if control.recv(1, socket.MSG_DONTWAIT) else Greeting.GONE
    except BlockingIOError:
        return Greeting.NONE
    except OSError:
        return Greeting.GONE


def take(control: socket.socket) -> None:
    """Tell PID 1 of the workers' side that the front has accepted this connection."""
    with contextlib.suppress(OSError):
        control.send(b"t", socket.MSG_DONTWAIT)


def connected(path: Path, secret: bytes) -> socket.socket | None:
    """Connect to the front that listens at `path` and send it the secret; returns None if no front listens."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # If the front's queue is full, the caller tries again later.
    control.settimeout(0)
    try:
        control.connect(str(path))
        control.send(secret)
    except OSError:
        control.close()
        return None
    return control


def listener_at(path: Path) -> socket.socket:
    """Return a listening socket for the workers' side. The socket outlives the fronts, which use it in turn."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A killed predecessor leaves its socket behind.
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    # The workers' side may run as another user of the same group. The front accepts only the first side that connects.
    path.chmod(_GROUP_MAY_CONNECT)
    listener.listen(_BACKLOG)
    return listener
