# SPDX-License-Identifier: Apache-2.0
"""A driver whose key can be replaced, and pools that run only what it has signed."""

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
    """A key in a file, and a file of signers that has it."""

    def __init__(self, directory: Path) -> None:
        self.key_file = directory / "signing.pem"
        self.signers_file = directory / "signers.toml"
        self.audit_file = directory / "audit"
        self.sign_as(Driver())
        self.trust(self.driver)

    @property
    def confs(self) -> Mapping[str, str]:
        """Of a session that signs."""
        return {KEY_FILE: str(self.key_file)}

    def sign_as(self, driver: Driver) -> None:
        """Give sessions another key."""
        self.driver = driver
        beside = self.key_file.with_suffix(".new")
        beside.touch(mode=0o600)
        beside.write_text(driver.private_pem)
        beside.replace(self.key_file)

    def trust(self, *drivers: Driver, revoked: str = "") -> None:
        """Let pools believe these drivers, but for the function with this digest."""
        beside = self.signers_file.with_suffix(".new")
        write_signers(beside, drivers, revoked=[revoked] if revoked else [])
        beside.replace(self.signers_file)

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
