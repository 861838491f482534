# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests: an authority and the certificates it signs, as PEM files for a server or a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


@dataclass(frozen=True)
class Identity:
    """Certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Authority that signs identities; peers trust it by its `certificate`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._ca = trustme.CA()
        self.certificate = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.certificate)

    def identity(self, name: str, *, not_after: datetime | None = None) -> Identity:
        """Sign a certificate for a host name or address, also its common name; `not_after` may lie in the past."""
        signed = self._ca.issue_cert(name, common_name=name, not_after=not_after)
        made = Identity(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        signed.cert_chain_pems[0].write_to_path(made.certificate)
        # A JVM reads only keys in PKCS 8.
        key = load_pem_private_key(signed.private_key_pem.bytes(), password=None)
        made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return made
