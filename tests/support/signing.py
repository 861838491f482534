# SPDX-License-Identifier: Apache-2.0
"""Driver whose key can be replaced, and pools that run only functions signed by it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from signing import Driver, write_signers

from tests.support.pool import NOTES, LocalPool

KEY_FILE = "spark.updraft.udf.signingKeyFile"


class Signing:
    """Key file of a driver, and a signers file that trusts it."""

    def __init__(self, directory: Path) -> None:
        self.key_file = directory / "signing.pem"
        self.signers_file = directory / "signers.toml"
        self.audit_file = directory / "audit"
        self.sign_as(Driver())
        self.trust(self.driver)

    @property
    def confs(self) -> Mapping[str, str]:
        """Settings of a session that signs."""
        return {KEY_FILE: str(self.key_file)}

    def sign_as(self, driver: Driver) -> None:
        """Replace the sessions' key by another driver's."""
        self.driver = driver
        beside = self.key_file.with_suffix(".new")
        beside.touch(mode=0o600)
        beside.write_text(driver.private_pem)
        beside.replace(self.key_file)

    def trust(self, *drivers: Driver, revoked: str = "") -> None:
        """Make pools trust these drivers, except for the function with the digest `revoked`."""
        beside = self.signers_file.with_suffix(".new")
        write_signers(beside, drivers, revoked=[revoked] if revoked else [])
        beside.replace(self.signers_file)

    def pool(self) -> LocalPool:
        """Return a pool that runs only signed functions and keeps an audit log."""
        arguments = ["--signers-file", str(self.signers_file), "--audit-file", str(self.audit_file)]
        return LocalPool(workers=2, notes=NOTES, session_functions="signed", arguments=arguments)

    def opened(self) -> Mapping[str, Any]:
        """Return the audit log's record of the most recent exchange."""
        records: list[dict[str, Any]] = [json.loads(line) for line in self.audit_file.read_text().splitlines()]
        return [record for record in records if record["event"] == "opened"][-1]


@contextmanager
def new_signing() -> Iterator[Signing]:
    """Yield a new driver's key and signers in a fresh directory."""
    # Not pytest's directory, because functions of the tests may write there.
    with tempfile.TemporaryDirectory(prefix="updraft-signing-") as directory:
        yield Signing(Path(directory))
