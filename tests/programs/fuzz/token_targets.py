# SPDX-License-Identifier: Apache-2.0
"""Fuzz targets for tokens from strangers, and for keys that an issuer publishes."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

from tests.programs.fuzz.target import Pieces, Target, mutated, number
from updraft.errors import UpdraftError
from updraft.service.identity import Scope
from updraft.service.issued_tokens import IssuedTokens
from updraft.service.issuer import ANY_TENANT, Issuer
from updraft.service.issuer_keys import Keys, parse_keys

_EC, _ED, _RSA = (
    ec.generate_private_key(ec.SECP256R1()),
    ed25519.Ed25519PrivateKey.generate(),
    rsa.generate_private_key(65537, 2048),
)
_PEM = _EC.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
_ENTRIES: list[dict[str, Any]] = [
    {**ECAlgorithm.to_jwk(_EC.public_key(), as_dict=True), "kid": "ec", "use": "sig"},
    {**OKPAlgorithm.to_jwk(_ED.public_key(), as_dict=True), "kid": "ed", "alg": "EdDSA"},
    {**RSAAlgorithm.to_jwk(_RSA.public_key(), as_dict=True), "kid": "rsa"},
]
_KEY_SET = json.dumps({"keys": _ENTRIES}).encode()
_ISSUER = Issuer(
    name="fuzz",
    issuer="https://i",
    audience="updraft",
    keys_file=Path("-"),
    tenants=frozenset(ANY_TENANT),
    scopes=frozenset(Scope),
    max_lifetime_seconds=3600,
)
_ODD: tuple[Any, ...] = (
    None,
    True,
    "",
    "a",
    "\ud800",
    [],
    {},
    [[]],
    1.5,
    float("nan"),
    float("inf"),
    10**4299,
    -(10**4299),
)


class _KnownKeys:
    """Keys that do not change."""

    current: Keys | None = parse_keys(_KEY_SET)

    def refresh(self) -> None:
        """Do nothing: the keys do not change."""


def _odd(chance: random.Random) -> Any:
    return chance.choice((*_ODD, number(chance), int(time.time()) + chance.randrange(-9999, 9999)))


def _key_set(chance: random.Random) -> Pieces:
    match chance.randrange(3):
        case 0:
            return [mutated(_PEM, chance)]
        case 1:
            return [mutated(_KEY_SET, chance)]
        case _:
            entries = [dict(entry) for entry in _ENTRIES]
            changed = chance.choice(entries)
            changed[chance.choice([*changed, "d", "oth"])] = _odd(chance)
            return [json.dumps({"keys": entries}).encode()]


def _read_key_set(pieces: Pieces) -> None:
    with contextlib.suppress(ValueError):
        parse_keys(pieces[0])


def _token(chance: random.Random) -> Pieces:
    """Return a signed token whose header or claims may be wrong, and a changed copy of it."""
    now = int(time.time())
    header: dict[str, Any] = {"alg": "ES256", "kid": "ec", "typ": "JWT"}
    claims: dict[str, Any] = {
        "iss": "https://i",
        "aud": "updraft",
        "iat": now,
        "exp": now + 60,
        "tenant": "a",
        "scope": "call",
    }
    if chance.random() < 0.3:
        header[chance.choice([*header, "crit", "b64", "jwk", "jku", "x5c", "cty"])] = _odd(chance)
    if chance.random() < 0.7:
        claims[chance.choice([*claims, "nbf", "sub"])] = _odd(chance)
    parts = [json.dumps(part).encode() for part in (header, claims)]
    if chance.random() < 0.3:
        parts = [mutated(part, chance) for part in parts]
    signed = b".".join(map(_encoded, parts))
    token = signed + b"." + _encoded(get_default_algorithms()["ES256"].sign(signed, _EC))
    return [token, mutated(token, chance)]


def _read_token(pieces: Pieces) -> None:
    tokens = IssuedTokens([_ISSUER], source_of=lambda _: _KnownKeys())
    signed, changed = pieces
    for token in (signed, changed):
        with contextlib.suppress(UpdraftError):
            identity = tokens.identity(token.decode("latin-1"))
            assert identity.tenant
            # Check the tenant, because messages, headers and records contain it.
            assert identity.tenant.encode()
            # Base64 can encode the same bytes in several ways.
            assert [_decoded(part) for part in token.split(b".")] == [_decoded(part) for part in signed.split(b".")]


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decoded(part: bytes) -> bytes:
    return base64.urlsafe_b64decode(part + b"==")


TARGETS = (Target("signing keys", _key_set, _read_key_set), Target("issued token", _token, _read_token))
