# SPDX-License-Identifier: Apache-2.0
"""Addresses to listen on, parsed once, so that every message about them looks the same."""

import atexit
import ipaddress
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_tcp_address(text: str) -> TcpAddress:
    """Parse `host:port` or `[v6]:port`; raises ValueError that says what is expected."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address: expected host:port, for example 127.0.0.1:8815")
    return TcpAddress(host, int(port))


def with_free_port(address: TcpAddress) -> TcpAddress:
    """The address with a free port in place of 0, reserved for this process until it ends.

    A server that listens with SO_REUSEADDR, as all do, can bind the port repeatedly. The system does not assign it to
    sockets that ask for any port, as clients do.
    """
    if address.port != 0:
        return address
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address.host, 0))
    atexit.register(held.close)
    return TcpAddress(address.host, held.getsockname()[1])
