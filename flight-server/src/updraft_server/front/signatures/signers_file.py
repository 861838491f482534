# SPDX-License-Identifier: Apache-2.0
"""File of the drivers whose signatures a pool accepts. Only a pool that checks signatures imports this module.

    [[signer]]
    name = "team-a-driver"          # for logs and errors
    public_key = '''
    -----BEGIN PUBLIC KEY-----      # openssl pkey -in signing.pem -pubout
    ...
    -----END PUBLIC KEY-----
    '''
    tenants = ["team-a"]            # tenants whose functions it may sign; every tenant if absent
    max_lifetime_days = 7           # longest time for which a signature may be valid

    [revoked]
    functions = ["sha256:51ab..."]  # pickled functions to refuse, whoever signed them; digests as in the audit log

Removing a signer from the file revokes its key. The file contains no secrets.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from pydantic import Field, StringConstraints

from updraft.service.toml_file import Name, Table, parse_toml

DAY_SECONDS = 24 * 60 * 60
_MAX_LIFETIME_DAYS = 366

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class _Signer(Table):
    name: Name
    public_key: str
    tenants: list[Name] | None = Field(default=None, min_length=1)
    max_lifetime_days: float = Field(default=7, gt=0, le=_MAX_LIFETIME_DAYS)


class _Revoked(Table):
    functions: list[Digest] = Field(default_factory=list)


class _File(Table):
    signer: list[_Signer] = Field(default_factory=list)
    revoked: _Revoked = _Revoked()


@dataclass(frozen=True, slots=True)
class Signer:
    """Driver, or several drivers that share one key."""

    name: str
    """Name in logs and errors."""
    key: Ed25519PublicKey
    tenants: frozenset[str] | None
    """Tenants whose functions the driver may sign; None means every tenant."""
    max_lifetime_seconds: float
    """Longest time for which a statement may be valid."""


@dataclass(frozen=True, slots=True)
class KnownSigners:
    """Parsed content of the file."""

    by_key: Mapping[bytes, Signer]
    """Signers by the SHA-256 of the raw public key."""
    revoked_functions: frozenset[bytes]
    """SHA-256 digests of pickled functions."""


def parse_signers(content: bytes) -> KnownSigners:
    """Parse the file; raise a ValueError that names the faulty place. Without a signer, no signature is valid."""
    file = parse_toml(_File, content)
    by_key: dict[bytes, Signer] = {}
    for entry in file.signer:
        key = _public_key(entry)
        digest = hashlib.sha256(key.public_bytes_raw()).digest()
        if digest in by_key:
            raise ValueError(f"{by_key[digest].name!r} and {entry.name!r} have the same public key")
        tenants = None if entry.tenants is None else frozenset(entry.tenants)
        by_key[digest] = Signer(entry.name, key, tenants, entry.max_lifetime_days * DAY_SECONDS)
    revoked = frozenset(bytes.fromhex(digest.removeprefix("sha256:")) for digest in file.revoked.functions)
    return KnownSigners(by_key, revoked)


def _public_key(entry: _Signer) -> Ed25519PublicKey:
    if "PRIVATE KEY" in entry.public_key:
        raise ValueError(f"the signer {entry.name!r} has a private key here, which belongs on the driver alone")
    try:
        key = load_pem_public_key(entry.public_key.strip().encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"the public_key of {entry.name!r} is not one in PEM: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"the public_key of {entry.name!r} is not for Ed25519: openssl genpkey -algorithm ed25519")
    return key
