# SPDX-License-Identifier: Apache-2.0
"""Identities file: the clients of a service, their token issuers, and the caps of tenants.

    [[identity]]
    name = "team-a-driver"                      # for logs and errors
    tenant = "team-a"                           # tenant of its calls; "*": each call names its tenant, as for a gateway
    scopes = ["call", "session"]                # some of call, session, write, admin
    token_sha256 = ["9f86d08188..."]            # printf %s "$TOKEN" | sha256sum
    certificates = ["spiffe://example.org/a"]   # or a common name; needs --tls-client-ca-file
    roots = ["/data/team-a"]                    # roots of a writer below which it may write; without this, all roots

    [[issuer]]
    name = "sign-on"                            # for logs and errors
    issuer = "https://login.example.org"        # the claim iss of its JSON Web Tokens
    audience = "updraft"                        # value that their claim aud has to contain
    keys_url = "https://login.example.org/keys" # or keys_file = "/etc/keys.json", a key set or a public key in PEM
    tenants = ["team-a", "team-b"]              # tenants that a token may name; "*": any
    scopes = ["call", "session"]                # all scopes that its tokens may grant
    roots = []                                  # as for an identity
    tenant_claim = "tenant"                     # claim with the tenant; ["a", "b"]: the claim b inside the claim a
    scope_claim = "scope"                       # claim with the scopes, as a list or as words
    default_scopes = []                         # scopes of a token without that claim
    max_lifetime_seconds = 86400                # longest time from iat to exp
    keys_ca_file = "/etc/ca.crt"                # authority of keys_url's certificate, if this machine does not trust it
    keys_token_file = "/etc/token"              # bearer token for keys_url
    keys_refresh_seconds = 30                   # interval of fetches: a withdrawn key stays valid for that long

    [issuer.tenants_of_subjects]                # instead of tenant_claim: by the claim sub, or a prefix of sub and "*"
    "system:serviceaccount:team-a:*" = "team-a"

    [revoked]                                   # issued tokens that are invalid although they have not expired
    jti = ["b7f2c0"]                            # by this claim
    sub = ["system:serviceaccount:team-a:old"]  # by this claim: all tokens of the subject, also future tokens
    token_sha256 = ["9f86d08188..."]            # printf %s "$TOKEN" | sha256sum

    [[tenant]]
    name = "team-a"                             # "*": tenants without an entry, and caps that an entry leaves out
    max_workers = 8                             # also max_waiting, max_queue_bytes, max_artifact_bytes
    max_files = 64                              # this cap and max_quota_bytes are for a writer

Two identities may not share a token or a certificate. The file contains no secrets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import Field

from updraft.service.identity import Identity, Scope
from updraft.service.issuer import ANY_TENANT, Digest, Issuer, RevokedTokens
from updraft.service.tenants import EVERY_TENANT, TenantCaps
from updraft.service.toml_file import Name, Table, parse_toml

Key = TypeVar("Key", bytes, str)


class _Entry(Table):
    name: Name
    tenant: Name
    scopes: list[Scope] = Field(min_length=1)
    token_sha256: list[Digest] = Field(default_factory=list)
    certificates: list[Name] = Field(default_factory=list)
    roots: list[Name] = Field(default_factory=list)


Cap = Annotated[int, Field(gt=0, strict=True)] | None


class _Tenant(Table):
    name: Name
    max_workers: Cap = None
    max_waiting: Cap = None
    max_queue_bytes: Cap = None
    max_artifact_bytes: Cap = None
    max_quota_bytes: Cap = None
    max_files: Cap = None

    def caps(self) -> dict[str, int]:
        """Return the caps by name; raise ValueError if the entry sets none."""
        caps: dict[str, int] = self.model_dump(exclude={"name"}, exclude_none=True)
        if not caps:
            raise ValueError(f"the tenant {self.name!r} has no cap: add a cap to its [[tenant]], or remove the entry")
        return caps


class _File(Table):
    identity: list[_Entry] = Field(default_factory=list)
    issuer: list[Issuer] = Field(default_factory=list)
    tenant: list[_Tenant] = Field(default_factory=list)
    revoked: RevokedTokens = RevokedTokens()


@dataclass(frozen=True, slots=True)
class KnownIdentities:
    """Parsed identities file."""

    by_digest: Mapping[bytes, Identity]
    by_certificate: Mapping[str, Identity]
    issuers: tuple[Issuer, ...]
    revoked: RevokedTokens
    """Revoked tokens of the issuers."""
    caps: Mapping[str, TenantCaps]
    """Caps by tenant; `*` has the caps of tenants without an entry."""


def parse_identities(content: bytes) -> KnownIdentities:
    """Parse the file; raise a ValueError that says which entry is wrong."""
    file = parse_toml(_File, content)
    if not file.identity and not file.issuer:
        raise ValueError("the file has neither an [[identity]] nor an [[issuer]]")
    by_digest: dict[bytes, Identity] = {}
    by_certificate: dict[str, Identity] = {}
    for entry in file.identity:
        tenant = None if entry.tenant == ANY_TENANT else entry.tenant
        identity = Identity(
            entry.name, tenant, frozenset(entry.scopes), tuple(entry.roots), proven_name=f"identity:{entry.name}"
        )
        if not entry.token_sha256 and not entry.certificates:
            raise ValueError(f"the identity {entry.name!r} has neither token_sha256 nor certificates")
        for digest in map(bytes.fromhex, entry.token_sha256):
            _add(by_digest, digest, identity)
        for name in entry.certificates:
            _add(by_certificate, name, identity)
    return KnownIdentities(by_digest, by_certificate, _issuers(file.issuer), file.revoked, _caps(file.tenant))


def _caps(entries: list[_Tenant]) -> Mapping[str, TenantCaps]:
    """Return the caps of each tenant; a cap that a tenant's entry does not set is taken from the entry `*`."""
    known: dict[str, dict[str, int]] = {}
    for entry in entries:
        if entry.name in known:
            raise ValueError(f"the tenant {entry.name!r} has two entries")
        known[entry.name] = entry.caps()
    common = known.get(EVERY_TENANT, {})
    return {tenant: TenantCaps(**{**common, **caps}) for tenant, caps in known.items()}


def _issuers(entries: list[Issuer]) -> tuple[Issuer, ...]:
    known: dict[str, Issuer] = {}
    for entry in entries:
        if entry.issuer in known:
            raise ValueError(f"{known[entry.issuer].name!r} and {entry.name!r} are the same issuer {entry.issuer!r}")
        entry.check()
        known[entry.issuer] = entry
    return tuple(known.values())


def _add(known: dict[Key, Identity], key: Key, identity: Identity) -> None:
    if key in known:
        raise ValueError(f"{known[key].name!r} and {identity.name!r} have a token or certificate in common")
    known[key] = identity
