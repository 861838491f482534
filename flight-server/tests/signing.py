# SPDX-License-Identifier: Apache-2.0
"""Driver with a key of its own, and its signatures."""

import hashlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from updraft.v1.exchange_pb2 import ExchangeCommand, SignedStatement, Statement

COMMAND_SHA256 = hashlib.sha256(b"a pickled function").digest()
DAY_MILLISECONDS = 24 * 60 * 60 * 1000


class Driver:
    """Driver that signs what its sessions ship."""

    def __init__(self, name: str = "a-driver") -> None:
        self.name = name
        self._key = Ed25519PrivateKey.generate()

    @property
    def public_pem(self) -> str:
        """Public key as `openssl pkey -pubout` writes it."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    @property
    def private_pem(self) -> str:
        """Private key as `openssl genpkey` writes it."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def statement(self, command: ExchangeCommand, schema: bytes, payload: bytes | None = None) -> Statement:
        """Return the statement about an exchange; pass `payload` if it is deferred."""
        now = int(time.time() * 1000)
        return Statement(
            owner=command.task.owner,
            issued_at_milliseconds=now,
            expires_at_milliseconds=now + 7 * DAY_MILLISECONDS,
            function=command.session,
            payload_sha256=hashlib.sha256(command.payload if payload is None else payload).digest(),
            schema_sha256=hashlib.sha256(schema).digest(),
            command_sha256=[COMMAND_SHA256],
        )

    def sign(self, statement: Statement | bytes) -> SignedStatement:
        """Return the statement with this driver's signature."""
        encoded = statement if isinstance(statement, bytes) else statement.SerializeToString()
        raw = self._key.public_key().public_bytes_raw()
        return SignedStatement(
            statement=encoded, signature=self._key.sign(encoded), key_sha256=hashlib.sha256(raw).digest()
        )

    def signed(self, command: ExchangeCommand, schema: bytes, payload: bytes | None = None) -> ExchangeCommand:
        """Return the command with a signed statement about it."""
        copy = ExchangeCommand()
        copy.CopyFrom(command)
        copy.signed_statement.CopyFrom(self.sign(self.statement(command, schema, payload)))
        return copy


def signer_entry(driver: Driver, **settings: Any) -> str:
    """Return a driver's table for a file of signers."""
    lines = (f"{name} = {value}\n" for name, value in settings.items())
    return f'[[signer]]\nname = "{driver.name}"\npublic_key = """\n{driver.public_pem}"""\n{"".join(lines)}'


def write_signers(
    path: Path, drivers: Iterable[Driver], *, revoked: Iterable[str] = (), **settings: Any
) -> Mapping[str, Any]:
    """Write a file of signers with the same settings, and return the front's settings that name it.

    `revoked` has digests of functions as an audit log names them.
    """
    entries = [signer_entry(driver, **settings) for driver in drivers]
    path.write_text("\n".join([*entries, f"[revoked]\nfunctions = {list(revoked)}\n"]))
    return {"signers_file": path}
