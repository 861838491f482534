# SPDX-License-Identifier: Apache-2.0
"""Identity of a caller: its tenant and scopes, proven by a token or a client certificate."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from updraft.errors import PermissionDeniedError


class Scope(enum.StrEnum):
    """Permission of an identity. Every authenticated caller may query a service's functions, versions and state."""

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
    """Authenticated caller."""

    name: str
    """Name for logs and errors."""
    tenant: str | None
    """Tenant of the identity; None if the caller names its tenant itself."""
    scopes: frozenset[Scope]
    roots: tuple[str, ...] = ()
    """Roots of a writer below which the identity may write; empty for all roots."""
    share: str = ""
    """Name under which the identity's exchanges are counted for fair shares, whatever tenant an exchange names. If
    empty, exchanges are counted under their tenant."""
    expires_seconds: float | None = field(default=None, compare=False)
    """Expiry of the credential, in seconds since 1970; None if the credential does not expire."""
    proven_name: str = field(default="", compare=False)
    """Name that no other client can prove; empty if several clients may have this identity."""

    def require(self, scope: Scope, what: str) -> None:
        """Raise PermissionDeniedError unless the identity has the scope that `what` needs."""
        if scope not in self.scopes:
            has = ", ".join(sorted(self.scopes)) or "none"
            raise PermissionDeniedError(
                f"the identity {self.name!r} may not {what}: it needs the scope {scope}, but has {has}"
            )

    def described(self) -> dict[str, object]:
        """Return the identity as the caller sees it; a tenant of None means that the caller names its tenant itself."""
        return {
            "identity": self.name,
            "tenant": self.tenant,
            "scopes": sorted(self.scopes),
            "roots": list(self.roots),
            "expires": self.expires_seconds,
        }

    def tenant_of(self, claims: Iterable[str]) -> str:
        """Return the identity's tenant; if callers name the tenant themselves, return the first claim or an empty text.

        Raises:
            PermissionDeniedError: A claim differs from the identity's tenant.
        """
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
"""Every caller of a service that asks for no credentials."""
STRANGER = Identity("a stranger", None, frozenset())
"""Unauthenticated caller of a method that needs no credentials, such as a health check."""
TOKEN_HOLDER = Identity("a holder of a token", None, _USERS)
"""Caller with a token of the token file."""
TOKEN_HOLDER_AMONG_IDENTITIES = replace(TOKEN_HOLDER, share="holders of tokens")
"""Caller with a token of the token file, on a service that has an identities file too.

All such callers have one share together, so a caller gains nothing if it names a new tenant for each exchange. No
tenant can have the name of this share, because names in the identities file have no spaces.
"""
