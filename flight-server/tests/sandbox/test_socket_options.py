# SPDX-License-Identifier: Apache-2.0
"""Socket options that a function cannot set: kernel memory of a socket, which counts in no process."""

import errno
import socket

import pytest
from sandboxed_children import SANDBOX, in_a_child, needs_filters, refused

pytestmark = needs_filters


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_no_message_holds_the_pages_that_it_was_sent_from(family: int) -> None:
    def allow() -> int:
        zero_copy = 60
        with socket.socket(family) as made:
            made.setsockopt(socket.SOL_SOCKET, zero_copy, 1)
        return 0

    assert refused(allow, errno.ENOPROTOOPT)


@pytest.mark.parametrize("option", [socket.SO_SNDBUF, socket.SO_RCVBUF])
@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_socket_keeps_the_size_of_its_buffers(family: int, option: int) -> None:
    def grown() -> int:
        with socket.socket(family) as made:
            before = made.getsockopt(socket.SOL_SOCKET, option)
            made.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
            return int(made.getsockopt(socket.SOL_SOCKET, option) > before)

    assert in_a_child(grown, sandboxed=None)
    assert not in_a_child(grown, sandboxed=SANDBOX)


def test_other_options_of_sockets_are_set() -> None:
    def set_others() -> int:
        with socket.socket() as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # This option has the number of SO_SNDBUF, but at another level.
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 3)
            changed = made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            return int(not changed or made.getsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT) != 3)

    assert socket.TCP_SYNCNT == socket.SO_SNDBUF
    assert in_a_child(set_others, sandboxed=SANDBOX) == 0
