# SPDX-License-Identifier: Apache-2.0
"""How a supervisor brings a zygote and a front together: it makes a pair of sockets and hands each side one end.

No zygote has an address: what a function in a worker could connect to does not exist.
"""

import contextlib
import socket
from pathlib import Path

CONTROL_VARIABLE = "UPDRAFT_FRONT_CONTROL"
"""The front's descriptor: its end of the control connection, or the listener that one is accepted from."""
MAX_HANDOVER_BYTES = 32


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


def introduced(door: socket.socket) -> tuple[socket.socket, int] | None:
    """The next front, and its number where that means something; None when no other one will come."""
    data, descriptors, _, _ = socket.recv_fds(door, MAX_HANDOVER_BYTES, 1)
    if not data or not descriptors:
        return None
    return socket.socket(fileno=descriptors[0]), int(data)


def connected(path: Path) -> socket.socket | None:
    """A control connection to the front that listens there; None when there is none."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A front whose queue is full is waited for by whoever asks again.
    control.settimeout(0)
    try:
        control.connect(str(path))
    except OSError:
        control.close()
        return None
    return control


def has_hung_up(control: socket.socket) -> bool:
    """Whether the other end is closed; nothing is ever said in that direction."""
    try:
        return not control.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
