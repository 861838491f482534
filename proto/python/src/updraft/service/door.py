# SPDX-License-Identifier: Apache-2.0
"""Tells who calls a service, by the credentials that it presents."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from updraft.errors import UnauthenticatedError
from updraft.service.identity import ANYBODY, TOKEN_HOLDER, Identity
from updraft.service.security import BearerTokens, Revocable

if TYPE_CHECKING:
    from updraft.service.identities_file import KnownIdentities

_BEARER = "Bearer "
_SPIFFE = "spiffe://"


class Door:
    """Tells who calls, by the files of a service; these are read again when they change.

    A file that has been missing or unusable for two seconds proves nothing until it is usable again: removing it
    revokes what it names. Call `refresh` more often than that, so that files are also watched while nobody calls.
    """

    def __init__(self, token_file: Path | None, identities_file: Path | None) -> None:
        """Raises SecurityError when a file cannot be used.

        Args:
            token_file: Tokens, one per line, whose holders may do all but administer, for any tenant.
            identities_file: Identities (`updraft.service.identities_file`).
        """
        self._tokens = BearerTokens(token_file) if token_file is not None else None
        self._identities = _revocable(identities_file) if identities_file is not None else None

    def refresh(self) -> None:
        """Check the files, and log if that revokes or restores what they name."""
        if self._tokens is not None:
            self._tokens.refresh()
        if self._identities is not None:
            self._identities.refresh()

    def identity(self, authorization: str, certificate_names: Iterable[str] = ()) -> Identity:
        """Who calls; raises UnauthenticatedError.

        Args:
            authorization: The header; it decides where there is one.
            certificate_names: SPIFFE ids and common name of the client's certificate, which TLS has verified.
        """
        if self._tokens is None and self._identities is None:
            return ANYBODY
        known = self._identities.current if self._identities is not None else None
        if known is not None:
            found = _by_token(known, authorization) if authorization else _by_certificate(known, certificate_names)
            if found is not None:
                return found
        if self._tokens is not None:
            self._tokens.check(authorization)
            return TOKEN_HOLDER
        if authorization:
            raise UnauthenticatedError("the token is not one that this service knows")
        if self._identities is not None and known is None:
            raise UnauthenticatedError(
                "nobody is known: this service cannot use its identities file, and its log says why"
            )
        raise UnauthenticatedError(
            "this service needs a token or a certificate that it knows: send the header 'authorization: Bearer <token>'"
        )


def _revocable(path: Path) -> "Revocable[KnownIdentities]":
    # What checks the file takes a while to import: a service without one starts sooner.
    from updraft.service.identities_file import parse_identities

    return Revocable(path, parse_identities, "credential")


def _by_token(known: "KnownIdentities", authorization: str) -> Identity | None:
    if not authorization.startswith(_BEARER):
        return None
    presented = hashlib.sha256(authorization.removeprefix(_BEARER).strip().encode()).digest()
    # Compares with all, each in constant time, so that the duration reveals nothing.
    found = [identity for digest, identity in known.by_digest.items() if hmac.compare_digest(presented, digest)]
    return found[0] if found else None


def _by_certificate(known: "KnownIdentities", names: Iterable[str]) -> Identity | None:
    return next((known.by_certificate[name] for name in names if name in known.by_certificate), None)


def certificate_names(properties: Mapping[str, Iterable[bytes]]) -> list[str]:
    """How a client's certificate names it, by what gRPC says of the connection: SPIFFE ids first.

    A common name cannot pass for a SPIFFE id.
    """
    ids = [_text(value) for value in properties.get("peer_spiffe_id", ())]
    common = [_text(value) for value in properties.get("x509_common_name", ())]
    return [*ids, *(name for name in common if not name.startswith(_SPIFFE))]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
