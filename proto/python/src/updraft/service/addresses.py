# SPDX-License-Identifier: Apache-2.0
"""Listen addresses, parsed once so that every message prints an address in the same way."""

import atexit
import ipaddress
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Host and port; port 0 lets the system choose."""

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
    """Parse `host:port` or `[v6]:port`; if the text is neither, raise a ValueError that shows the expected form."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address: expected host:port, for example 127.0.0.1:8815")
    return TcpAddress(host, int(port))


def with_free_port(address: TcpAddress) -> TcpAddress:
    """Return the address with port 0 replaced with a free port, reserved until this process ends.

    The reserving socket sets SO_REUSEADDR. Our servers set it too, so they can bind the port repeatedly. The system
    does not hand a reserved port to sockets that ask for any free port, such as clients' sockets.
    """
    if address.port != 0:
        return address
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address.host, 0))
    atexit.register(held.close)
    return TcpAddress(address.host, held.getsockname()[1])
