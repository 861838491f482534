# SPDX-License-Identifier: Apache-2.0
"""Messages from a supervisor to its zygote over their socket."""

import os
import socket

from updraft_server.ipc.control import MAX_FAULT_BYTES, connect_both, packet_pair, receive_front, refuse_reload


def test_a_refusal_is_not_taken_for_a_front_nor_for_the_end() -> None:
    zygote, zygotes_end = packet_pair()
    control, fronts_end = packet_pair()
    with zygote, zygotes_end, control, fronts_end:
        refuse_reload(zygote, "SyntaxError \udcff" + "é" * MAX_FAULT_BYTES)
        connect_both(zygote, control, os.getpid())
        zygote.shutdown(socket.SHUT_WR)
        refusal = receive_front(zygotes_end)
        assert isinstance(refusal, str)
        assert refusal.startswith("SyntaxError ?é")
        assert len(refusal.encode()) <= MAX_FAULT_BYTES
        front = receive_front(zygotes_end)
        assert isinstance(front, tuple)
        assert front[1] == os.getpid()
        front[0].close()
        assert receive_front(zygotes_end) is None


def test_a_front_whose_connection_is_lost_on_its_way_is_no_refusal() -> None:
    zygote, zygotes_end = packet_pair()
    with zygote, zygotes_end:
        zygote.send(str(os.getpid()).encode())
        assert receive_front(zygotes_end) is None
