# SPDX-License-Identifier: Apache-2.0
"""A taken port is reported before anything else is printed, with a free port to use instead."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.paths import REPOSITORY


@pytest.fixture
def taken() -> Iterator[int]:
    """Yield a loopback port with a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def _asked(value: object, *offsets: int) -> tuple[int, str]:
    command = [sys.executable, str(REPOSITORY / ".ci/free_ports.py"), f"PORT={value}", *map(str, offsets)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == ""
    return ran.returncode, ran.stderr


def _suggested(said: str) -> int:
    found = re.search(r"choose another with PORT=(\d+)$", said, re.MULTILINE)
    assert found, said
    return int(found[1])


def test_free_ports_are_not_spoken_of(taken: int) -> None:
    free = _suggested(_asked(taken, 0)[1])
    assert _asked(free, 0) == (0, "")


def test_a_taken_port_is_named_with_one_that_is_free(taken: int) -> None:
    status, said = _asked(taken, 0, 10)
    assert status == 1
    assert said.startswith(f"error: port {taken} of 127.0.0.1 is in use: ")
    assert _asked(_suggested(said), 0, 10) == (0, "")


def test_a_port_that_follows_from_another_is_named_with_how(taken: int) -> None:
    status, said = _asked(taken - 10, 0, 10)
    assert status == 1
    assert said.startswith(f"error: port {taken} (PORT + 10) of 127.0.0.1 is in use: ")


def test_a_port_whose_connections_have_just_ended_is_free(taken: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0] as accepted:
            accepted.shutdown(socket.SHUT_RDWR)
    assert _asked(port, 0) == (0, "")


@pytest.mark.parametrize("value", ["", "http", "0", "-1", "64526", "70000", "8815 "])
def test_what_is_no_port_is_refused(value: str) -> None:
    assert _asked(value, 0, 1010) == (1, f"error: PORT={value} is no port: a number from 1 to 64525 is needed\n")
