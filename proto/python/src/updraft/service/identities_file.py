# SPDX-License-Identifier: Apache-2.0
"""The file of the identities of a service's clients.

    [[identity]]
    name = "team-a-driver"                      # for logs and errors
    tenant = "team-a"                           # whose it is; "*": it may say so itself, as a gateway has to
    scopes = ["call", "session"]                # of call, session, write, admin
    token_sha256 = ["9f86d08188..."]            # printf %s "$TOKEN" | sha256sum
    certificates = ["spiffe://example.org/a"]   # or a common name; needs --tls-client-ca-file
    roots = ["/data/team-a"]                    # of a writer: only below these; without it below all of its roots

Two identities may not share a token or a certificate. The file holds no secret.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from updraft.service.identity import Identity, Scope

_ANY_TENANT = "*"

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
class KnownIdentities:
    """What the file names."""

    by_digest: Mapping[bytes, Identity]
    by_certificate: Mapping[str, Identity]


def parse_identities(content: bytes) -> KnownIdentities:
    """What the file says; raises ValueError, which names the place."""
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
    return KnownIdentities(by_digest, by_certificate)


def _add(known: dict[Key, Identity], key: Key, identity: Identity) -> None:
    if key in known:
        raise ValueError(f"{known[key].name!r} and {identity.name!r} have a token or certificate in common")
    known[key] = identity
