# SPDX-License-Identifier: Apache-2.0
"""Who may read a service's metrics and status: they name functions, tasks and errors of every tenant.

Where code of strangers runs on the service's own machine, an address proves nothing about who asks from there: that
takes a token. Other machines need one only if the operator gave a file of tokens.
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
    """Decides for each request; used from any number of threads."""

    def __init__(self, token_file: Path | None, neighbours_token_file: Path | None) -> None:
        """Raises SecurityError when a file cannot be used.

        Args:
            token_file: Tokens that everybody needs; None: nobody does.
            neighbours_token_file: Where there is no `token_file`, tokens that are needed by whoever asks from this
                machine; None: nobody does.
        """
        path = token_file or neighbours_token_file
        self._tokens = BearerTokens(path) if path is not None else None
        self._others_need_none = token_file is None
        self._lock = threading.Lock()

    def refusal(self, peer: str, authorization: str) -> str:
        """Why the request from the address `peer` with this header is refused; empty: it is not."""
        if self._tokens is None or (self._others_need_none and not is_own_address(peer)):
            return ""
        try:
            with self._lock:
                self._tokens.check(_as_bearer(authorization))
        except UnauthenticatedError as error:
            return str(error)
        return ""


def is_own_address(text: str) -> bool:
    """Whether this machine, or the network namespace of this process, has the address.

    Nobody there can complete a connection from an address that it does not have: the answer would go elsewhere.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or _can_be_bound(str(address), address.version)


def _can_be_bound(address: str, version: int) -> bool:
    # Asked each time: interfaces come and go.
    with socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            # Anything else says nothing, and is taken for the worst.
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _as_bearer(authorization: str) -> str:
    """The header as if it were a bearer token's: a browser can only ask for a name and a password."""
    if not authorization.startswith(_BASIC):
        return authorization
    with contextlib.suppress(binascii.Error, UnicodeDecodeError):
        _, _, password = base64.b64decode(authorization.removeprefix(_BASIC), validate=True).decode().partition(":")
        return f"Bearer {password}"
    return ""
