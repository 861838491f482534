# SPDX-License-Identifier: Apache-2.0
"""Additional calls that the profile `restricted` refuses: the network, processes and programs."""

import errno
import signal
import socket

import pytest
from sandboxed_children import NOWHERE, error_of, in_a_child, needs_filters

from updraft_server.linux.system_calls import call_number
from updraft_server.sandbox.refused_calls import restricted_calls
from updraft_server.sandbox.worker_sandbox import WorkerSandbox

pytestmark = needs_filters

RESTRICTED_SANDBOX = WorkerSandbox(restricted=True)

_CLONE_VM, _CLONE_FILES, _CLONE_SIGHAND, _CLONE_THREAD = 0x100, 0x400, 0x800, 0x10000


REFUSED: list[tuple[str, tuple[int, ...]]] = [
    ("socket", (socket.AF_INET, socket.SOCK_STREAM, 0)),
    ("socket", (socket.AF_INET6, socket.SOCK_DGRAM, 0)),
    ("socket", (socket.AF_UNIX, socket.SOCK_STREAM, 0)),
    ("socket", (socket.AF_NETLINK, socket.SOCK_RAW, 0)),
    ("socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM, 0, NOWHERE)),
    ("socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0, NOWHERE)),
    *((call, (-1, NOWHERE, 0)) for call in ("connect", "bind", "listen", "accept", "accept4")),
    ("fork", ()),
    ("vfork", ()),
    ("execve", (NOWHERE, 0, 0)),
    ("execveat", (-1, NOWHERE, 0, 0, 0)),
    ("clone", (signal.SIGCHLD, 0, 0, 0, 0)),
    ("clone", (_CLONE_VM | _CLONE_FILES | _CLONE_SIGHAND, 0, 0, 0, 0)),
]


@pytest.mark.parametrize(("call", "arguments"), REFUSED)
def test_a_restricted_worker_reaches_nobody_and_starts_nothing(call: str, arguments: tuple[int, ...]) -> None:
    if call_number(call) is None:
        pytest.skip("this architecture has no such call")
    assert in_a_child(lambda: error_of(call, *arguments), sandboxed=RESTRICTED_SANDBOX) == errno.EPERM


def test_every_call_that_the_restricted_profile_refuses_is_tried() -> None:
    assert {rule.call for rule in restricted_calls()} == {call for call, _ in REFUSED}


def test_a_restricted_worker_has_pairs_of_sockets() -> None:
    def paired() -> int:
        one, other = socket.socketpair()
        one.send(b"x")
        return 0 if other.recv(1) == b"x" else 1

    assert in_a_child(paired, sandboxed=RESTRICTED_SANDBOX) == 0
