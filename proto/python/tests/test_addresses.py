# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from updraft.service.addresses import TcpAddress, parse_tcp_address, with_free_port


@pytest.mark.parametrize("text", ["127.0.0.1:8815", "[::1]:0", "pool.example.org:65535"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_tcp_address(text)) == text


@pytest.mark.parametrize("text", ["", "8815", ":8815", "host:", "host:x", "host:-1", "host:65536", "host:²"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:8815"):
        parse_tcp_address(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_only_loopback_is_loopback(host: str, loopback: bool) -> None:
    assert TcpAddress(host, 1).is_loopback is loopback


def test_a_free_port_replaces_0_only() -> None:
    assert with_free_port(TcpAddress("127.0.0.1", 7)).port == 7
    assert with_free_port(TcpAddress("127.0.0.1", 0)).port != 0


def test_a_free_port_is_for_whoever_listens_on_it_again_and_again() -> None:
    address = with_free_port(TcpAddress("127.0.0.1", 0))
    for _ in range(2):
        with socket.create_server((address.host, address.port)), socket.create_connection((address.host, address.port)):
            pass
    with socket.socket() as somebody_else, pytest.raises(OSError, match="in use"):
        somebody_else.bind((address.host, address.port))
