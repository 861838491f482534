# SPDX-License-Identifier: Apache-2.0
"""Issuers of tokens for a service's clients, and the limits of what those tokens grant."""

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
    """Tokens that are refused although their signature is valid and they have not expired."""

    ids: frozenset[str] = frozenset()
    """Values of the claim `jti`."""
    subjects: frozenset[str] = frozenset()
    """Values of the claim `sub`. All tokens of such a subject are revoked, whoever issues them and whenever."""
    digests: frozenset[bytes] = frozenset()
    """SHA-256 digests of whole tokens."""

    def has(self, digest: bytes, claims: Mapping[str, Any]) -> bool:
        """Return whether a token with this digest and these claims is revoked."""
        token_id, subject = claims.get("jti"), claims.get("sub")
        return (
            digest in self.digests
            or (isinstance(token_id, str) and token_id in self.ids)
            or (isinstance(subject, str) and subject in self.subjects)
        )


@dataclass(frozen=True, slots=True)
class Issuer:
    """Issuer of JSON Web Tokens, with a ceiling for what its tokens may grant."""

    name: str
    """Name for logs and errors."""
    issuer: str
    """Claim `iss` of its tokens."""
    audience: str
    """Name of this service, which the claim `aud` has to contain."""
    keys_file: Path | None
    """JSON Web Key Set, or a public key in PEM; None if the keys come from `keys_url`."""
    keys_url: str | None
    """URL of its JSON Web Key Set."""
    keys_ca_file: Path | None
    """Authorities that may have signed the certificate of `keys_url`; None for those that this machine trusts."""
    keys_token_file: Path | None
    """Bearer token sent to `keys_url`; None to send none."""
    tenant_claim: tuple[str, ...]
    """Path of the claim with the tenant: each name is looked up inside the claim before it."""
    tenants_of_subjects: tuple[tuple[str, str], ...]
    """Tenants by the claim `sub`, or by a prefix of it followed by `*`; if there are any, `tenant_claim` is unused."""
    scope_claim: str
    """Claim with the scopes, as a list or as words."""
    tenants: frozenset[str]
    """Tenants that a token may name; `*` allows any."""
    scopes: frozenset[Scope]
    """All scopes that a token may grant."""
    default_scopes: frozenset[Scope]
    """Scopes of a token without `scope_claim`."""
    roots: tuple[str, ...]
    """Roots of a writer below which its tokens may write; empty for all of them."""
    max_lifetime_seconds: int
    """Longest time from `iat` to `exp`."""
    keys_refresh_seconds: int = 30
    """Interval of fetches from `keys_url`: a key that is no longer published stays valid for that long."""

    def identity(self, claims: Mapping[str, Any]) -> Identity:
        """Return the identity of a verified token; raise PermissionDeniedError if it claims more than the ceiling."""
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
            raise PermissionDeniedError(f"the token names no tenant: its claim {claim!r} has to be a string")
        # JSON may contain lone surrogates, which cannot be encoded elsewhere; they are not printable.
        if not tenant.isprintable() or len(tenant) > _MAX_NAME_CHARACTERS:
            raise PermissionDeniedError(
                f"the token names no tenant: its claim {claim!r} has to be a string of at most "
                f"{_MAX_NAME_CHARACTERS} printable characters"
            )
        if tenant not in self.tenants and ANY_TENANT not in self.tenants:
            raise PermissionDeniedError(f"a token of this issuer cannot act for the tenant {tenant!r}")
        return tenant

    def _tenant_of(self, subject: Any) -> str:
        """Return the tenant of a subject: an exact entry wins over a prefix, and a longer prefix over a shorter one."""
        found = ""
        if isinstance(subject, str):
            ranked = sorted(self.tenants_of_subjects, key=lambda entry: (entry[0].endswith(ANY_TENANT), -len(entry[0])))
            found = next((tenant for pattern, tenant in ranked if _fits(subject, pattern)), "")
        if not found:
            raise PermissionDeniedError(
                "the token's subject has no tenant here: tenants_of_subjects of its issuer does not name the subject"
            )
        return found

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Return the scopes that the token grants; ignore words that are not scopes of ours, such as `openid`."""
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
