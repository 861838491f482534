# SPDX-License-Identifier: Apache-2.0
"""Who issues tokens to clients of a service, and how far those tokens go."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from updraft.errors import PermissionDeniedError
from updraft.service.identity import Identity, Scope

ANY_TENANT = "*"
_MAX_NAME_CHARACTERS = 253


@dataclass(frozen=True, slots=True)
class RevokedTokens:
    """Tokens that count no more, although their issuer's signature and time say that they do."""

    ids: frozenset[str] = frozenset()
    """Of the claim `jti`."""
    subjects: frozenset[str] = frozenset()
    """Of the claim `sub`, whoever has issued the token and whenever."""
    digests: frozenset[bytes] = frozenset()
    """SHA-256 of whole tokens."""

    def has(self, digest: bytes, claims: Mapping[str, Any]) -> bool:
        """Whether a token with this digest and these claims is one of them."""
        token_id, subject = claims.get("jti"), claims.get("sub")
        return (
            digest in self.digests
            or (isinstance(token_id, str) and token_id in self.ids)
            or (isinstance(subject, str) and subject in self.subjects)
        )


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer of JSON Web Tokens, and the ceiling of what a token of it may grant."""

    name: str
    """For logs and errors."""
    issuer: str
    """Its claim `iss`."""
    audience: str
    """What the claim `aud` has to name: this service."""
    keys_file: Path | None
    """A JSON Web Key Set, or a public key in PEM; None: `keys_url` has the keys."""
    keys_url: str | None
    """Where its JSON Web Key Set is published."""
    keys_ca_file: Path | None
    """Whose certificates the address of the keys may have; None: those that this machine trusts."""
    keys_token_file: Path | None
    """What the address of the keys is asked with; None: nothing."""
    tenant_claim: tuple[str, ...]
    """The claim with the tenant; of several names each lies in the one before it."""
    tenants_of_subjects: tuple[tuple[str, str], ...]
    """Tenants by the claim `sub`, or by its beginning where that ends in `*`; they decide where there are any."""
    scope_claim: str
    tenants: frozenset[str]
    """Of these a token may name one; `*`: whichever it names."""
    scopes: frozenset[Scope]
    """More than these no token grants."""
    default_scopes: frozenset[Scope]
    """What a token without the claim for scopes grants."""
    roots: tuple[str, ...]
    """Below which of a writer's roots its tokens may write; empty: below all of them."""
    max_lifetime_seconds: int
    """From `iat` to `exp`."""
    keys_refresh_seconds: int = 30
    """How often the address of the keys is asked: a key that it no longer names counts for that long."""

    def identity(self, claims: Mapping[str, Any]) -> Identity:
        """Whose a verified token with these claims is; raises PermissionDeniedError for more than the ceiling."""
        return Identity(
            self._name_of(claims.get("sub")),
            self._tenant(claims),
            self._scopes(claims),
            self.roots,
            expires_seconds=float(claims["exp"]),
        )

    def _name_of(self, subject: Any) -> str:
        if isinstance(subject, str) and subject.isascii() and subject.isprintable():
            return f"{self.name}:{subject[:_MAX_NAME_CHARACTERS]}"
        return self.name

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        if self.tenants_of_subjects:
            return self._tenant_of(claims.get("sub"))
        tenant: Any = claims
        for name in self.tenant_claim:
            tenant = tenant.get(name) if isinstance(tenant, Mapping) else None
        if tenant is None and len(self.tenants) == 1 and ANY_TENANT not in self.tenants:
            return next(iter(self.tenants))
        claim = ".".join(self.tenant_claim)
        if not isinstance(tenant, str) or tenant in ("", ANY_TENANT):
            raise PermissionDeniedError(f"the token names no tenant: its claim {claim!r} has to be a text")
        # JSON has halves of characters, which nothing else can carry.
        if not tenant.isprintable() or len(tenant) > _MAX_NAME_CHARACTERS:
            raise PermissionDeniedError(
                f"the token names no tenant: its claim {claim!r} has to be a text of at most "
                f"{_MAX_NAME_CHARACTERS} characters, none of them for control"
            )
        if tenant not in self.tenants and ANY_TENANT not in self.tenants:
            raise PermissionDeniedError(f"a token of this issuer cannot act for the tenant {tenant!r}")
        return tenant

    def _tenant_of(self, subject: Any) -> str:
        """The whole subject counts before its beginning, and a longer beginning before a shorter one."""
        found = ""
        if isinstance(subject, str):
            ranked = sorted(self.tenants_of_subjects, key=lambda entry: (entry[0].endswith(ANY_TENANT), -len(entry[0])))
            found = next((tenant for pattern, tenant in ranked if _fits(subject, pattern)), "")
        if not found:
            raise PermissionDeniedError(
                "the token is of a subject that has no tenant here: tenants_of_subjects of its issuer does not name it"
            )
        return found

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Those that this project has; a token may name others, such as `openid`."""
        value = claims.get(self.scope_claim)
        if value is None and self.default_scopes:
            return self.default_scopes
        words = value.split() if isinstance(value, str) else value
        named = [word for word in words if isinstance(word, str)] if isinstance(words, list | tuple) else []
        scopes = frozenset(scope for scope in Scope if scope in named)
        if not scopes:
            raise PermissionDeniedError(
                f"the token grants nothing here: its claim {self.scope_claim!r} has none of {', '.join(Scope)}"
            )
        if beyond := ", ".join(sorted(scopes - self.scopes)):
            raise PermissionDeniedError(f"a token of this issuer cannot have the scope {beyond}")
        return scopes


def _fits(subject: str, pattern: str) -> bool:
    if pattern.endswith(ANY_TENANT):
        return subject.startswith(pattern.removesuffix(ANY_TENANT))
    return subject == pattern
