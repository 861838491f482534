# SPDX-License-Identifier: Apache-2.0
"""Access control for a service's metrics and status, which name functions, tasks and errors of every tenant.

If foreign code runs on the service's own machine, a local address proves nothing about the client. So requests from
this machine then need a token. Requests from other machines need a token only if the operator set a token file.
"""

import base64
import binascii
import contextlib
import errno
import ipaddress
import socket
import threading
from pathlib import Path

from updraft.errors import UnauthenticatedError
from updraft.service.security import BearerTokens

_BASIC = "Basic "


class Observers:
    """Access check for each request; safe to use from any number of threads."""

    def __init__(self, token_file: Path | None, neighbours_token_file: Path | None) -> None:
        """Read the tokens; raise SecurityError if a file cannot be used.

        Args:
            token_file: File of the tokens that every request needs, or None.
            neighbours_token_file: File of the tokens that requests from this machine need if there is no `token_file`,
                or None. Without either file, requests need no token.
        """
        path = token_file or neighbours_token_file
        self._tokens = BearerTokens(path) if path is not None else None
        self._others_need_none = token_file is None
        self._lock = threading.Lock()

    def refusal(self, peer: str, authorization: str) -> str:
        """Return why the request from address `peer` with this header is refused; empty if it is allowed."""
        if self._tokens is None or (self._others_need_none and not is_own_address(peer)):
            return ""
        try:
            with self._lock:
                self._tokens.check(_as_bearer(authorization))
        except UnauthenticatedError as error:
            return str(error)
        return ""


def is_own_address(text: str) -> bool:
    """Return whether the address belongs to this machine, or to the network namespace of this process.

    Local code cannot complete a connection from any other address: the replies would go elsewhere.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or _can_be_bound(str(address), address.version)


def _can_be_bound(address: str, version: int) -> bool:
    # Check again for each request, because interfaces come and go.
    with socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            # Other errors do not prove that the address is remote, so treat the address as local and require a token.
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _as_bearer(authorization: str) -> str:
    """Turn a Basic header into a Bearer header with its password, because browsers send only a name and a password."""
    if not authorization.startswith(_BASIC):
        return authorization
    with contextlib.suppress(binascii.Error, UnicodeDecodeError):
        _, _, password = base64.b64decode(authorization.removeprefix(_BASIC), validate=True).decode().partition(":")
        return f"Bearer {password}"
    return ""
