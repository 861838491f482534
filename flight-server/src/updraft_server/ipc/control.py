# SPDX-License-Identifier: Apache-2.0
"""How a supervisor brings a zygote and a front together: it makes a pair of sockets and hands each side one end.

No zygote has an address: what a function in a worker could connect to does not exist.
"""

import contextlib
import enum
import hmac
import os
import secrets
import socket
from pathlib import Path

KNOWN_VARIABLE = "UPDRAFT_FRONT_KNOWN"
"""The front's descriptor of what its supervisor remembers of the workers' side (`KnownSide`)."""
CONTROL_VARIABLE = "UPDRAFT_FRONT_CONTROL"
"""The front's descriptor: its end of the control connection, or the listener that one is accepted from."""
MAX_HANDOVER_BYTES = 32
SECRET_BYTES = 32
MAX_FAULT_BYTES = 4 * 1024
_REFUSAL = b"refused "


def packet_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends that speak in whole packets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def introduce(door: socket.socket, control: socket.socket, front_pid: int) -> None:
    """Give the zygote behind `door` and the front behind `control` a connection to each other.

    One that is gone, or does not read, is noticed elsewhere: the other then finds its end closed.

    Args:
        door: Leads to the zygote.
        control: Leads to the front.
        front_pid: The front as the zygote's side knows it, or 0 where its number means nothing there.
    """
    front_end, zygote_end = packet_pair()
    with front_end, zygote_end:
        for to, content, end in ((door, str(front_pid).encode(), zygote_end), (control, b"zygote", front_end)):
            with contextlib.suppress(OSError):
                socket.send_fds(to, [content], [end.fileno()], socket.MSG_DONTWAIT)


def refuse_reload(door: socket.socket, fault: str) -> None:
    """Tell the zygote behind `door`, and through it the fronts, why a reload was refused."""
    with contextlib.suppress(OSError):
        door.send(_REFUSAL + fault.encode(errors="replace")[:MAX_FAULT_BYTES], socket.MSG_DONTWAIT)


def introduced(door: socket.socket) -> tuple[socket.socket, int] | str | None:
    """Receive one message from the supervisor.

    Returns:
        A front with its process id (0 in another PID namespace), the reason of a refused reload, or None at the end.
    """
    data, descriptors, _, _ = socket.recv_fds(door, len(_REFUSAL) + MAX_FAULT_BYTES, 1)
    if data.startswith(_REFUSAL):
        return data.removeprefix(_REFUSAL).decode(errors="ignore")
    if not data or not descriptors:
        return None
    return socket.socket(fileno=descriptors[0]), int(data)


class KnownSide:
    """The secret by which PID 1 of the workers' side is known again, to each front that a supervisor starts.

    It is told before any user code runs there, when nobody else can connect. What runs later can connect, between two
    fronts, and does not know it.
    """

    def __init__(self, descriptor: int) -> None:
        """Over memory that a supervisor shares with its fronts."""
        self.descriptor = descriptor

    @classmethod
    def made(cls, *, somebody: bool) -> "KnownSide":
        """New, for a supervisor; with `somebody` a side is expected that an earlier supervisor knew."""
        known = cls(os.memfd_create("updraft-known"))
        if somebody:
            os.pwrite(known.descriptor, new_secret(), 0)
        return known

    @property
    def is_anybody(self) -> bool:
        """Whether the next to come is believed."""
        return os.fstat(self.descriptor).st_size == 0

    def is_known(self, secret: bytes) -> bool:
        """Whether it comes from the side that is known; the first that comes is known from then on."""
        if len(secret) != SECRET_BYTES:
            return False
        if self.is_anybody:
            os.pwrite(self.descriptor, secret, 0)
        return hmac.compare_digest(os.pread(self.descriptor, SECRET_BYTES, 0), secret)

    def forget(self) -> None:
        """It has gone, and whatever ran there."""
        os.ftruncate(self.descriptor, 0)


def new_secret() -> bytes:
    """For PID 1 of a workers' side, to tell every front."""
    return secrets.token_bytes(SECRET_BYTES)


class Greeting(enum.Enum):
    """What a front has made of a connection so far."""

    NONE = "nothing yet"
    TAKEN = "taken"
    GONE = "refused, or gone"


def greeting(control: socket.socket) -> Greeting:
    """What the front at the other end has said since it was asked before; nothing but `take` is ever said."""
    try:
        return Greeting.TAKEN if control.recv(1, socket.MSG_DONTWAIT) else Greeting.GONE
    except BlockingIOError:
        return Greeting.NONE
    except OSError:
        return Greeting.GONE


def take(control: socket.socket) -> None:
    """Say to PID 1 of the workers' side that this is its connection to the front."""
    with contextlib.suppress(OSError):
        control.send(b"t", socket.MSG_DONTWAIT)


def connected(path: Path, secret: bytes) -> socket.socket | None:
    """A control connection to the front that listens there, which has been told the secret; None when there is none."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A front whose queue is full is waited for by whoever asks again.
    control.settimeout(0)
    try:
        control.connect(str(path))
        control.send(secret)
    except OSError:
        control.close()
        return None
    return control
