# SPDX-License-Identifier: Apache-2.0
"""Authentication of a service's callers by the credentials that they present."""

import asyncio
import hmac
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from updraft.errors import UnauthenticatedError
from updraft.service.identity import ANYBODY, TOKEN_HOLDER, TOKEN_HOLDER_AMONG_IDENTITIES, Identity
from updraft.service.security import BearerTokens, Revocable, bearer_digest, bearer_token
from updraft.service.tenants import EVERY_TENANT, NO_CAPS, TenantCaps

if TYPE_CHECKING:
    from concurrent.futures import Future

    from updraft.service.identities_file import KnownIdentities
    from updraft.service.issued_tokens import IssuedTokens
    from updraft.service.issuer import Issuer

_MAX_ISSUED_CHARACTERS = 16 * 1024
# How long a call waits for the new keys of its token's issuer.
_KEYS_SECONDS = 5.0
_SPIFFE = "spiffe://"


class Authenticator:
    """Authenticator of callers, based on a service's credential files, which it rereads when they change.

    If a file has been missing or unusable for two seconds, its credentials are invalid until the file is usable again.
    So removing a file revokes its credentials. Call `refresh` at least every two seconds, so that files are watched
    while the service is idle.
    """

    def __init__(self, token_file: Path | None, identities_file: Path | None) -> None:
        """Read the files; raise SecurityError if a file cannot be used.

        Args:
            token_file: Tokens, one per line. Their holders have every scope but admin, and may name any tenant.
            identities_file: Identities (`updraft.service.identities_file`).
        """
        self.refused = 0
        """Number of calls refused because their credentials were missing or invalid."""
        self._tokens = BearerTokens(token_file) if token_file is not None else None
        self._identities = _revocable(identities_file) if identities_file is not None else None
        self._caps: Mapping[str, TenantCaps] = {}
        known = self._known()
        self._issuers: tuple[Issuer, ...] = known.issuers if known is not None else ()
        self._issued = _issued_tokens(self._issuers) if self._issuers else None

    def refresh(self) -> None:
        """Check the files; log if a change has revoked or restored credentials."""
        if self._tokens is not None:
            self._tokens.refresh()
        if self._identities is not None:
            issued = self._issued_by(self._known())
            if issued is not None:
                issued.refresh()

    def caps_of(self, tenant: str) -> TenantCaps:
        """Return the caps of a tenant; if the file has become unusable, return the last known caps."""
        return self._caps.get(tenant) or self._caps.get(EVERY_TENANT, NO_CAPS)

    def _known(self) -> "KnownIdentities | None":
        """Return the current content of the identities file; return None without a file, or if it cannot be used."""
        known = self._identities.current if self._identities is not None else None
        if known is not None:
            self._caps = known.caps
        return known

    async def identify(
        self, authorization: str, certificate_names: Iterable[str] = (), *, waited_seconds: float = 0.0
    ) -> Identity:
        """Return the identity as `identity` does, but wait up to 5 seconds for new keys of the token's issuer.

        Count refused calls.
        """
        try:
            return await self._identified(authorization, certificate_names, waited_seconds)
        except UnauthenticatedError:
            self.refused += 1
            raise

    async def _identified(
        self, authorization: str, certificate_names: Iterable[str], waited_seconds: float
    ) -> Identity:
        names = list(certificate_names)
        changes = self._issued.changes if self._issued is not None else 0
        try:
            return self.identity(authorization, names, waited_seconds=waited_seconds)
        except UnauthenticatedError:
            awaited = self._awaited_keys(authorization)
            # A thread may have fetched new keys since the first check.
            if awaited is None and (self._issued is None or self._issued.changes == changes):
                raise
        if awaited is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(awaited)), _KEYS_SECONDS)
        return self.identity(authorization, names, waited_seconds=waited_seconds)

    def _awaited_keys(self, authorization: str) -> "Future[None] | None":
        issued = self._issued_by(self._known())
        token = _issued_form(authorization)
        return issued.awaited_keys(token) if issued is not None and token else None

    def _issued_by(self, known: "KnownIdentities | None") -> "IssuedTokens | None":
        """Return the verifier for the issuers that the file names now, or None if it names no issuer."""
        if known is None:
            return None
        if known.issuers != self._issuers:
            self._issuers = known.issuers
            self._issued = self._issued or _issued_tokens(())
            self._issued.update(known.issuers)
        if self._issued is not None:
            self._issued.revoked = known.revoked
        return self._issued if self._issuers else None

    def identity(
        self, authorization: str, certificate_names: Iterable[str] = (), *, waited_seconds: float = 0.0
    ) -> Identity:
        """Return the identity of a caller; raise UnauthenticatedError.

        Args:
            authorization: The authorization header; if it is set, the certificate is ignored.
            certificate_names: SPIFFE ids and common name of the client's certificate, which TLS has verified.
            waited_seconds: How long ago the call arrived; a token that was valid at that time is accepted.
        """
        if self._tokens is None and self._identities is None:
            return ANYBODY
        known = self._known()
        if known is not None:
            found = _by_token(known, authorization) if authorization else _by_certificate(known, certificate_names)
            if found is not None:
                return found
        issued, token = self._issued_by(known), _issued_form(authorization)
        if issued is not None and token and not self._is_plain(authorization):
            return issued.identity(token, waited_seconds=waited_seconds)
        if self._tokens is not None:
            self._tokens.check(authorization)
            return TOKEN_HOLDER if self._identities is None else TOKEN_HOLDER_AMONG_IDENTITIES
        if authorization:
            raise UnauthenticatedError("the token is not one that this service knows")
        if self._identities is not None and known is None:
            raise UnauthenticatedError(
                "no client is accepted: this service cannot use its identities file, and its log says why"
            )
        raise UnauthenticatedError(
            "this service needs a token or a certificate that it knows: send the header 'authorization: Bearer <token>'"
        )

    def _is_plain(self, authorization: str) -> bool:
        """Return whether the token is listed in the token file."""
        if self._tokens is None:
            return False
        try:
            self._tokens.check(authorization)
        except UnauthenticatedError:
            return False
        return True


def _issued_tokens(issuers: "Iterable[Issuer]") -> "IssuedTokens":
    # The import takes a tenth of a second, so do it only for a service that knows issuers.
    from updraft.service.issued_tokens import IssuedTokens

    return IssuedTokens(issuers)


def _issued_form(authorization: str) -> str:
    """Return the token if it has the three parts of a signed JSON Web Token, else an empty string."""
    token = bearer_token(authorization) or ""
    return token if token.count(".") == 2 and len(token) <= _MAX_ISSUED_CHARACTERS else ""


def _revocable(path: Path) -> "Revocable[KnownIdentities]":
    # The parser is slow to import, so import it only if there is an identities file.
    from updraft.service.identities_file import parse_identities

    return Revocable(path, parse_identities, "credential")


def _by_token(known: "KnownIdentities", authorization: str) -> Identity | None:
    presented = bearer_digest(authorization)
    if presented is None:
        return None
    # Compare with every digest, each in constant time, so that the duration reveals nothing.
    found = [identity for digest, identity in known.by_digest.items() if hmac.compare_digest(presented, digest)]
    return found[0] if found else None


def _by_certificate(known: "KnownIdentities", names: Iterable[str]) -> Identity | None:
    return next((known.by_certificate[name] for name in names if name in known.by_certificate), None)


def certificate_names(properties: Mapping[str, Iterable[bytes]]) -> list[str]:
    """Return the names in a client's certificate, from gRPC's properties of the connection: SPIFFE ids first.

    Skip a common name that looks like a SPIFFE id.
    """
    ids = [_text(value) for value in properties.get("peer_spiffe_id", ())]
    common = [_text(value) for value in properties.get("x509_common_name", ())]
    return [*ids, *(name for name in common if not name.startswith(_SPIFFE))]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
