# SPDX-License-Identifier: Apache-2.0
"""Readers of an exchange: callers that may read its function's output and profile it.

A caller may read and profile only its own exchanges. It proves that an exchange is its own by an identity that no other
client has, or by a secret that it sent with the exchange. A token of the token file proves nothing, because
several clients may share it.
"""

import hashlib

from updraft.errors import PermissionDeniedError, ProtocolError
from updraft.protocol import LOG_KEY_HEADER
from updraft.service.identity import Identity
from updraft_server.pool.worker_events import Reader

# Length of 128 random bits in hexadecimal.
_SHORTEST_KEY_CHARACTERS = 32


def readers(identity: Identity, log_key: str) -> frozenset[Reader]:
    """Return the readers of an exchange that a caller begins, and the readers whose exchanges the caller may read.

    Raises:
        ProtocolError: The key is short enough to be guessed.
    """
    found = set()
    if log_key:
        if len(log_key) < _SHORTEST_KEY_CHARACTERS:
            raise ProtocolError(
                f"the log key has {len(log_key)} characters: send at least {_SHORTEST_KEY_CHARACTERS} random ones"
            )
        digest = hashlib.sha256(log_key.encode("utf-8", "surrogatepass")).hexdigest()
        found.add(Reader(identity.name, identity.tenant, f"key:{digest}"))
    if identity.proven_name:
        found.add(Reader(identity.name, identity.tenant, identity.proven_name))
    return frozenset(found)


def require_readers(identity: Identity, log_key: str) -> frozenset[Reader]:
    """Return the readers whose exchanges the caller may read; raise PermissionDeniedError if there are none."""
    if found := readers(identity, log_key):
        return found
    raise PermissionDeniedError(
        f"this pool cannot tell which exchanges of {identity.name!r} are your own: send a secret with your exchanges, "
        f"in the header {LOG_KEY_HEADER}, and with this call (`updraft call` and `updraft logs` do so), or use an "
        "identity of the pool's identities file"
    )
