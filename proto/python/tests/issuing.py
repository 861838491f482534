# SPDX-License-Identifier: Apache-2.0
"""Issuer of JSON Web Tokens for tests: its keys, its key set and its tokens."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from updraft.errors import UnauthenticatedError
from updraft.service.authenticator import Authenticator
from updraft.service.identity import Identity

ISSUER = "https://login.example.org"
AUDIENCE = "updraft"


class Key:
    """Key pair; `algorithm` signs with it."""

    def __init__(self, kid: str, algorithm: str = "ES256") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: Any
        converter: Any
        if algorithm in ("RS256", "PS256"):
            self.private, converter = rsa.generate_private_key(65537, 2048), RSAAlgorithm
        elif algorithm == "EdDSA":
            self.private, converter = ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm
        else:
            self.private, converter = ec.generate_private_key(ec.SECP256R1()), ECAlgorithm
        self.entry: dict[str, Any] = {**converter.to_jwk(self.private.public_key(), as_dict=True), "kid": kid}

    @property
    def pem(self) -> bytes:
        """Return the public key."""
        return bytes(self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    def token(self, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a good token of `ISSUER` for tenant a and scope call, with these claims changed; None removes one."""
        return jwt.encode(
            good_claims(**claims), self.private, self.algorithm, headers={"kid": self.kid, **(headers or {})}
        )


def good_claims(**others: Any) -> dict[str, Any]:
    """Return the claims of a good token, with these changed; None removes one."""
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "job",
        "iat": now,
        "exp": now + 3600,
        "tenant": "a",
        "scope": "call",
    }
    return {name: value for name, value in (claims | others).items() if value is not None}


def key_set(*keys: Key) -> bytes:
    """Return the key set with these keys."""
    return json.dumps({"keys": [key.entry for key in keys]}).encode()


def entry(
    keys: str, *, tenants: Sequence[str] = ("a", "b"), scopes: Sequence[str] = ("call", "session"), **more: Any
) -> str:
    """Return the table of `ISSUER` in an identities file; `keys` is the line that says where its keys are."""
    values: dict[str, Any] = {
        "name": "sign-on",
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "tenants": list(tenants),
        "scopes": list(scopes),
        **more,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(["[[issuer]]", *lines, keys, ""])


class ServiceWithIssuer:
    """Files of a service that trusts `ISSUER`."""

    def __init__(self, directory: Path, *keys: Key) -> None:
        self.directory = directory
        self.keys = directory / "keys.json"
        self.identities = directory / "identities.toml"
        self.publish(*keys)

    def publish(self, *keys: Key) -> None:
        self.keys.write_bytes(key_set(*keys))

    def authenticator(self, token_file: Path | None = None, **table: Any) -> Authenticator:
        self.identities.write_text(entry(f'keys_file = "{self.keys}"', **table))
        return Authenticator(token_file, self.identities)


def identity(authenticator: Authenticator, token: str) -> Identity:
    return authenticator.identity(f"Bearer {token}")


def refusal(authenticator: Authenticator, token: str) -> str:
    with pytest.raises(UnauthenticatedError) as caught:
        identity(authenticator, token)
    return caught.value.message
