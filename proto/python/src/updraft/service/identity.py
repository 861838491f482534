# SPDX-License-Identifier: Apache-2.0
"""Who calls, and what that caller may do: a tenant and scopes, proven by a token or by a client certificate."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from updraft.errors import PermissionDeniedError


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
    share: str = ""
    """Whose share of the service it takes, whatever tenant it names; empty: that tenant's."""
    expires_seconds: float | None = field(default=None, compare=False)
    """When its credential ends, in seconds since 1970; None: not by itself."""

    def require(self, scope: Scope, what: str) -> None:
        """Raise PermissionDeniedError unless it has the scope for `what`."""
        if scope not in self.scopes:
            has = ", ".join(sorted(self.scopes)) or "none"
            raise PermissionDeniedError(
                f"the identity {self.name!r} may not {what}: that takes the scope {scope}, and it has {has}"
            )

    def described(self) -> dict[str, object]:
        """What the caller may know of itself. A tenant of null: it says itself which one it is."""
        return {
            "identity": self.name,
            "tenant": self.tenant,
            "scopes": sorted(self.scopes),
            "roots": list(self.roots),
            "expires": self.expires_seconds,
        }

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
STRANGER = Identity("a stranger", None, frozenset())
"""Whoever asks what needs no credentials, of whatever service."""
TOKEN_HOLDER = Identity("a holder of a token", None, _USERS)
"""Whoever has a token of a plain file of tokens."""
TOKEN_HOLDER_AMONG_IDENTITIES = replace(TOKEN_HOLDER, share="holders of tokens")
"""The same where others are known by name: a tenant for each exchange must not get it more than one share. No tenant of
an identity has a space in its name."""
