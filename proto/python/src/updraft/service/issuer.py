# SPDX-License-Identifier: Apache-2.0
"""Issuers of tokens for a service's clients, and the limits of what those tokens grant."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from updraft.errors import PermissionDeniedError
from updraft.service.identity import Identity, Scope
from updraft.service.toml_file import Name, Table

ANY_TENANT = "*"
_MAX_NAME_CHARACTERS = 253
_DAY_SECONDS = 24 * 60 * 60
_MAX_LIFETIME_DAYS = 31
# Half of the hour for which fetched keys stay valid while their URL does not answer.
_MAX_REFRESH_SECONDS = 1800
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

Text = Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern=r"^[\x21-\x7e]+$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class RevokedTokens(Table):
    """Tokens that are refused although their signature is valid and they have not expired."""

    jti: frozenset[Text] = frozenset()
    """Values of the claim `jti`."""
    sub: frozenset[Text] = frozenset()
    """Values of the claim `sub`. All tokens of such a subject are revoked, whichever issuer issued them, including
    tokens issued later."""
    token_sha256: frozenset[Digest] = frozenset()
    """SHA-256 digests of whole tokens."""

    def has(self, digest: bytes, claims: Mapping[str, Any]) -> bool:
        """Return whether a token with this digest and these claims is revoked."""
        token_id, subject = claims.get("jti"), claims.get("sub")
        return (
            digest.hex() in self.token_sha256
            or (isinstance(token_id, str) and token_id in self.jti)
            or (isinstance(subject, str) and subject in self.sub)
        )


def _safe_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.username is not None or not parts.hostname:
        raise ValueError("expected https://host/path")
    if parts.scheme != "https" and (parts.scheme, parts.hostname in _THIS_MACHINE) != ("http", True):
        raise ValueError(
            "expected https, or http to this machine: the server that answers decides whose tokens are valid"
        )
    return url


def _as_path(claim: Any) -> Any:
    return (claim,) if isinstance(claim, str) else claim


class Issuer(Table):
    """Issuer of JSON Web Tokens, with a ceiling for what its tokens may grant."""

    name: Name
    """Name for logs and errors."""
    issuer: Text
    """Claim `iss` of its tokens."""
    audience: Text
    """Name of this service, which the claim `aud` has to contain."""
    keys_file: Path | None = None
    """JSON Web Key Set, or a public key in PEM; None if the keys come from `keys_url`."""
    keys_url: Annotated[Text, AfterValidator(_safe_url)] | None = None
    """URL of its JSON Web Key Set."""
    tenants: frozenset[Name] = Field(min_length=1)
    """Tenants that a token may name; `*` allows any."""
    scopes: frozenset[Scope] = Field(min_length=1)
    """All scopes that a token may grant."""
    roots: tuple[Name, ...] = ()
    """Roots of a writer below which its tokens may write; empty for all roots."""
    tenant_claim: Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(_as_path)] = ("tenant",)
    """Path of the claim with the tenant: each name is looked up inside the claim that the previous name led to."""
    tenants_of_subjects: dict[Text, Name] = Field(default_factory=dict)
    """Tenants by the value of the claim `sub`, or by a prefix of that value followed by `*`. If there are entries,
    `tenant_claim` is unused."""
    scope_claim: Text = "scope"
    """Claim with the scopes, as a list or as words."""
    default_scopes: frozenset[Scope] = frozenset()
    """Scopes of a token without `scope_claim`."""
    keys_ca_file: Path | None = None
    """Authorities that may have signed the certificate of `keys_url`; None for the authorities that this machine
    trusts."""
    keys_token_file: Path | None = None
    """Bearer token sent to `keys_url`; None to send none."""
    keys_refresh_seconds: int = Field(default=30, ge=10, le=_MAX_REFRESH_SECONDS)
    """Interval of fetches from `keys_url`: a key that is no longer published stays valid for that long."""
    max_lifetime_seconds: int = Field(default=_DAY_SECONDS, gt=0, le=_MAX_LIFETIME_DAYS * _DAY_SECONDS)
    """Longest time from `iat` to `exp`."""

    def __hash__(self) -> int:
        return hash(self.issuer)

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if (self.keys_file is None) == (self.keys_url is None):
            raise ValueError(f"the issuer {self.name!r} needs either keys_file or keys_url")
        if self.keys_url is None and (self.keys_ca_file or self.keys_token_file):
            raise ValueError(f"the issuer {self.name!r} has keys_ca_file or keys_token_file, but no keys_url")
        if beyond := ", ".join(sorted(self.default_scopes - self.scopes)):
            raise ValueError(f"default_scopes of the issuer {self.name!r} are beyond its scopes: {beyond}")
        for pattern, tenant in self.tenants_of_subjects.items():
            if pattern == ANY_TENANT or ANY_TENANT in pattern[:-1]:
                raise ValueError(
                    f"the issuer {self.name!r} has the subject {pattern!r}:"
                    " expected a subject, or a prefix followed by *"
                )
            if tenant == ANY_TENANT or (tenant not in self.tenants and ANY_TENANT not in self.tenants):
                raise ValueError(f"the issuer {self.name!r} gives {pattern!r} a tenant that is not in its tenants")

    def identity(self, claims: Mapping[str, Any]) -> Identity:
        """Return the identity of a verified token; raise PermissionDeniedError if the claims exceed the ceiling."""
        return Identity(
            self._name_of(claims.get("sub")),
            self._tenant(claims),
            self._scopes(claims),
            self.roots,
            expires_seconds=float(claims["exp"]),
            proven_name=self._proven_name_of(claims.get("sub")),
        )

    def _proven_name_of(self, subject: Any) -> str:
        """Return a name that only tokens of this subject prove: the whole subject, unlike the name for logs."""
        return f"issuer:{self.issuer}\n{subject}" if isinstance(subject, str) and subject else ""

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
        # JSON may contain lone surrogates, which cannot be encoded elsewhere. They are not printable, so this check
        # refuses them.
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
            ranked = sorted(
                self.tenants_of_subjects.items(), key=lambda entry: (entry[0].endswith(ANY_TENANT), -len(entry[0]))
            )
            found = next((tenant for pattern, tenant in ranked if _fits(subject, pattern)), "")
        if not found:
            raise PermissionDeniedError(
                "the token's subject has no tenant here: tenants_of_subjects of its issuer does not name the subject"
            )
        return found

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Return the scopes that the token grants; ignore the scopes of other applications, such as `openid`."""
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
