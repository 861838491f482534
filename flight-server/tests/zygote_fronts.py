# SPDX-License-Identifier: Apache-2.0
"""Fronts of a zygote that speak in single packets."""

import os
import select
import socket
from typing import TypeVar

from updraft_server.ipc.zygote_packets import (
    FORKED_DESCRIPTORS,
    MAX_PACKET_BYTES,
    Fork,
    Forked,
    Hello,
    Packet,
    decode,
    encode,
)

# Reached only if something hangs.
HANG_SECONDS = 60.0
Answer = TypeVar("Answer")


class Front:
    """Connection to the zygote, and the workers that it delivered."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.settimeout(HANG_SECONDS)
        self.descriptors: list[int] = []
        self.hello = self.expect(Hello)

    def send(self, packet: Packet) -> None:
        self._socket.send(encode(packet))

    def expect(self, kind: type[Answer]) -> Answer:
        data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_PACKET_BYTES, FORKED_DESCRIPTORS)
        self.descriptors += descriptors
        packet = decode(data)
        assert isinstance(packet, kind), packet
        return packet

    def fork(self) -> tuple[str, int]:
        """Fork a worker and return its id and a pidfd."""
        self.send(Fork(1))
        forked = self.expect(Forked)
        return forked.worker, os.pidfd_open(forked.pid)

    def hang_up(self) -> None:
        self._socket.close()

    def close(self) -> None:
        self.hang_up()
        for descriptor in self.descriptors:
            os.close(descriptor)


def ends(pidfd: int) -> bool:
    ended = select.select([pidfd], [], [], HANG_SECONDS)[0] == [pidfd]
    os.close(pidfd)
    return ended
