# SPDX-License-Identifier: Apache-2.0
"""A driver's key, and pools that run only what was signed with it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.support.pool import NOTES, LocalPool

KEY_FILE = "spark.updraft.udf.signingKeyFile"


class Signing:
    """A key in a file, and a file of signers that has it, in a directory that functions may not write to."""

    def __init__(self, directory: Path):
        self.key_file = directory / "signing.pem"
        self.signers_file = directory / "signers.toml"
        self.audit_file = directory / "audit"
        self.replace_key()
        self.trust()

    @property
    def confs(self) -> Mapping[str, str]:
        """Of a session that signs."""
        return {KEY_FILE: str(self.key_file)}

    def replace_key(self) -> None:
        """Give the driver another key, which nobody trusts yet."""
        self._key = Ed25519PrivateKey.generate()
        new = self.key_file.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_bytes(self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        new.rename(self.key_file)

    def trust(self, *, revoked: str = "") -> None:
        """Let pools believe the key, but for the function with this digest."""
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        signer = f'[[signer]]\nname = "the-driver"\npublic_key = """\n{public}"""\n'
        self.signers_file.write_text(signer + f"[revoked]\nfunctions = {[revoked] if revoked else []}\n")

    def pool(self) -> LocalPool:
        """One that runs nothing else, and keeps an audit log."""
        arguments = ["--signers-file", str(self.signers_file), "--audit-file", str(self.audit_file)]
        return LocalPool(workers=2, notes=NOTES, session_functions="signed", arguments=arguments)

    def opened(self) -> Mapping[str, Any]:
        """The audit log's record of the exchange that was opened last."""
        records: list[dict[str, Any]] = [json.loads(line) for line in self.audit_file.read_text().splitlines()]
        return [record for record in records if record["event"] == "opened"][-1]


@contextmanager
def new_signing() -> Iterator[Signing]:
    """Another driver."""
    # Not pytest's: functions of the tests may write there.
    with tempfile.TemporaryDirectory(prefix="updraft-signing-") as directory:
        yield Signing(Path(directory))
