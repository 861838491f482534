# SPDX-License-Identifier: Apache-2.0
"""Who connected, told by ancestors."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from updraft_server.linux.callers import descends_from

_CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    connection.recv(1)
"""


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        yield listening


def test_a_caller_descends_from_itself_and_from_who_started_it(listener: socket.socket) -> None:
    # A shell in between: a grandchild.
    command = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", _CONNECT, listener.getsockname()]
    with subprocess.Popen(command) as shell:
        caller, _ = listener.accept()
        with caller:
            assert descends_from(caller, {shell.pid})
            assert descends_from(caller, {os.getpid()})
            with subprocess.Popen(["sleep", "1000"]) as stranger:
                assert not descends_from(caller, {stranger.pid})
                stranger.kill()
            assert not descends_from(caller, set())


def test_a_caller_that_is_gone_could_have_been_anybodys(listener: socket.socket) -> None:
    with subprocess.Popen([sys.executable, "-c", _CONNECT, listener.getsockname()]) as child:
        caller, _ = listener.accept()
        caller.send(b"x")
        child.wait()
        with caller:
            assert descends_from(caller, set())
