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
    tenant_claim: str
    scope_claim: str
    tenants: frozenset[str]
    """Of these a token may name one; `*`: whichever it names."""
    scopes: frozenset[Scope]
    """More than these no token grants."""
    roots: tuple[str, ...]
    """Below which of a writer's roots its tokens may write; empty: below all of them."""
    max_lifetime_seconds: int
    """From `iat` to `exp`."""

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
        tenant = claims.get(self.tenant_claim)
        if tenant is None and len(self.tenants) == 1 and ANY_TENANT not in self.tenants:
            return next(iter(self.tenants))
        if not isinstance(tenant, str) or tenant in ("", ANY_TENANT):
            raise PermissionDeniedError(f"the token names no tenant: its claim {self.tenant_claim!r} has to be a text")
        if tenant not in self.tenants and ANY_TENANT not in self.tenants:
            raise PermissionDeniedError(f"a token of this issuer cannot act for the tenant {tenant!r}")
        return tenant

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Those that this project has; a token may name others, such as `openid`."""
        value = claims.get(self.scope_claim, ())
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
