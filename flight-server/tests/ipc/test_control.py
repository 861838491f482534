# SPDX-License-Identifier: Apache-2.0
"""Messages from a supervisor to its zygote, through the door."""

import os
import socket

from updraft_server.ipc.control import MAX_FAULT_BYTES, introduce, introduced, packet_pair, refuse_reload


def test_a_refusal_is_not_taken_for_a_front_nor_for_the_end() -> None:
    door, zygotes_end = packet_pair()
    control, fronts_end = packet_pair()
    with door, zygotes_end, control, fronts_end:
        refuse_reload(door, "SyntaxError \udcff" + "é" * MAX_FAULT_BYTES)
        introduce(door, control, os.getpid())
        door.shutdown(socket.SHUT_WR)
        refusal = introduced(zygotes_end)
        assert isinstance(refusal, str)
        assert refusal.startswith("SyntaxError ?é")
        assert len(refusal.encode()) <= MAX_FAULT_BYTES
        front = introduced(zygotes_end)
        assert isinstance(front, tuple)
        assert front[1] == os.getpid()
        front[0].close()
        assert introduced(zygotes_end) is None


def test_a_front_whose_connection_is_lost_on_its_way_is_no_refusal() -> None:
    door, zygotes_end = packet_pair()
    with door, zygotes_end:
        door.send(str(os.getpid()).encode())
        assert introduced(zygotes_end) is None
