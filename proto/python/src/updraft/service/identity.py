# SPDX-License-Identifier: Apache-2.0
"""Who calls, and what that caller may do: a tenant and scopes, proven by a token or by a client certificate.

    [[identity]]
    name = "team-a-driver"                      # for logs and errors
    tenant = "team-a"                           # whose it is; "*": it may say so itself, as a gateway has to
    scopes = ["call", "session"]                # of call, session, write, admin
    token_sha256 = ["9f86d08188..."]            # printf %s "$TOKEN" | sha256sum
    certificates = ["spiffe://example.org/a"]   # or a common name; needs --tls-client-ca-file
    roots = ["/data/team-a"]                    # of a writer: only below these; without it below all of its roots

Two identities may not share a token or a certificate. The file holds no secret.
"""

import enum
import hashlib
import hmac
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from updraft.errors import PermissionDeniedError, UnauthenticatedError
from updraft.service.security import BearerTokens, Revocable

_BEARER = "Bearer "
_ANY_TENANT = "*"
_SPIFFE = "spiffe://"


class Scope(enum.StrEnum):
    """What an identity may do. Whoever is known may ask what a service is: its functions, versions and state."""

    CALL = "call"
    """Run registered functions."""
    SESSION = "session"
    """Run functions that the caller ships."""
    WRITE = "write"
    """Write files."""
    ADMIN = "admin"
    """Drain a service, and read what the code of every tenant does."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller that has proven who it is."""

    name: str
    """For logs and errors."""
    tenant: str | None
    """Whose it is; None: it may say so itself."""
    scopes: frozenset[Scope]
    roots: tuple[str, ...] = ()
    """Below which of a writer's roots it may write; empty: below all of them."""

    def require(self, scope: Scope, what: str) -> None:
        """Raise PermissionDeniedError unless it has the scope for `what`."""
        if scope not in self.scopes:
            has = ", ".join(sorted(self.scopes)) or "none"
            raise PermissionDeniedError(
                f"the identity {self.name!r} may not {what}: that takes the scope {scope}, and it has {has}"
            )

    def tenant_of(self, claims: Iterable[str]) -> str:
        """Its tenant, or the first one that is claimed where it may say so itself; raises PermissionDeniedError."""
        claimed = [claim for claim in claims if claim]
        if self.tenant is None:
            return next(iter(claimed), "")
        for claim in claimed:
            if claim != self.tenant:
                raise PermissionDeniedError(
                    f"the identity {self.name!r} is of the tenant {self.tenant!r} and cannot act for {claim!r}: take "
                    "the tenant out of the client's settings, or use a credential of that tenant"
                )
        return self.tenant


_USERS = frozenset({Scope.CALL, Scope.SESSION, Scope.WRITE})
ANYBODY = Identity("anybody", None, _USERS)
"""Whoever reaches a service that asks for no credentials."""
_TOKEN_HOLDER = Identity("a holder of a token", None, _USERS)

Key = TypeVar("Key", bytes, str)
Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[\x21-\x7e]+$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name
    tenant: Name
    scopes: list[Scope] = Field(min_length=1)
    token_sha256: list[Digest] = []
    certificates: list[Name] = []
    roots: list[Name] = []


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    identity: list[_Entry] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class _Known:
    by_digest: Mapping[bytes, Identity]
    by_certificate: Mapping[str, Identity]


class Door:
    """Tells who calls, by the files of a service; these are read again when they change.

    A file that has been missing or unusable for two seconds proves nothing until it is usable again: removing it
    revokes what it names. Call `refresh` more often than that, so that files are also watched while nobody calls.
    """

    def __init__(self, token_file: Path | None, identities_file: Path | None) -> None:
        """Raises SecurityError when a file cannot be used.

        Args:
            token_file: Tokens, one per line, whose holders may do all but administer, for any tenant.
            identities_file: Identities, as above.
        """
        self._tokens = BearerTokens(token_file) if token_file is not None else None
        self._identities = Revocable(identities_file, _parsed, "credential") if identities_file is not None else None

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
            return _TOKEN_HOLDER
        if authorization:
            raise UnauthenticatedError("the token is not one that this service knows")
        if self._identities is not None and known is None:
            raise UnauthenticatedError(
                "nobody is known: this service cannot use its identities file, and its log says why"
            )
        raise UnauthenticatedError(
            "this service needs a token or a certificate that it knows: send the header 'authorization: Bearer <token>'"
        )


def _by_token(known: _Known, authorization: str) -> Identity | None:
    if not authorization.startswith(_BEARER):
        return None
    presented = hashlib.sha256(authorization.removeprefix(_BEARER).strip().encode()).digest()
    # Compares with all, each in constant time, so that the duration reveals nothing.
    found = [identity for digest, identity in known.by_digest.items() if hmac.compare_digest(presented, digest)]
    return found[0] if found else None


def _by_certificate(known: _Known, names: Iterable[str]) -> Identity | None:
    return next((known.by_certificate[name] for name in names if name in known.by_certificate), None)


def _parsed(content: bytes) -> _Known:
    try:
        entries = _File.model_validate(tomllib.loads(content.decode())).identity
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
    by_digest: dict[bytes, Identity] = {}
    by_certificate: dict[str, Identity] = {}
    for entry in entries:
        tenant = None if entry.tenant == _ANY_TENANT else entry.tenant
        identity = Identity(entry.name, tenant, frozenset(entry.scopes), tuple(entry.roots))
        if not entry.token_sha256 and not entry.certificates:
            raise ValueError(f"the identity {entry.name!r} has neither token_sha256 nor certificates")
        for digest in map(bytes.fromhex, entry.token_sha256):
            _add(by_digest, digest, identity)
        for name in entry.certificates:
            _add(by_certificate, name, identity)
    return _Known(by_digest, by_certificate)


def _add(known: dict[Key, Identity], key: Key, identity: Identity) -> None:
    if key in known:
        raise ValueError(f"{known[key].name!r} and {identity.name!r} have a token or certificate in common")
    known[key] = identity


def certificate_names(properties: Mapping[str, Iterable[bytes]]) -> list[str]:
    """How a client's certificate names it, by what gRPC says of the connection: SPIFFE ids first.

    A common name cannot pass for a SPIFFE id.
    """
    ids = [_text(value) for value in properties.get("peer_spiffe_id", ())]
    common = [_text(value) for value in properties.get("x509_common_name", ())]
    return [*ids, *(name for name in common if not name.startswith(_SPIFFE))]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
