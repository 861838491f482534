# SPDX-License-Identifier: Apache-2.0
"""Two tenants that do not trust each other and share a pool: their tokens and keys, and the pool's files about them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from signing import Driver, signer_entry

from tests.support.signing import KEY_FILE

RED, BLUE = "red", "blue"
CALLER = "red-caller"
"""Another identity of red, which may call registered functions but ship none."""
TENANTS = "tenants"
"""Secret with one token file per identity, for executors."""
TOKEN_FILE = "spark.updraft.udf.tokenFile"
_IDENTITIES = {RED: (RED, ["call", "session"]), BLUE: (BLUE, ["call", "session"]), CALLER: (RED, ["call"])}


class Tenants:
    """Credentials of the tenants, and the files of their pool."""

    tokens: Mapping[str, str] = {name: f"the-token-of-{name}" for name in _IDENTITIES}
    observers_token = "of-the-platforms-monitoring"

    def __init__(self, directory: Path, mounts: Path) -> None:
        """Make keys and tokens in `directory`, for programs on this machine; jobs have the tokens below `mounts`."""
        self._directory = directory
        self._mounts = mounts
        self._drivers = {tenant: Driver(f"{tenant}-driver") for tenant in (RED, BLUE)}
        for tenant, driver in self._drivers.items():
            self.key_file(tenant).touch(mode=0o600)
            self.key_file(tenant).write_text(driver.private_pem)
        for name, token in self.tokens.items():
            self.token_file(name).write_text(token)

    def key_file(self, tenant: str) -> Path:
        """Return the key file with which a tenant's driver signs; only this machine has it."""
        return self._directory / f"{tenant}.pem"

    def token_file(self, name: str) -> Path:
        """Return the token file of an identity, for a program on this machine."""
        return self._directory / name

    def confs(self, name: str, signs: str = "") -> dict[str, str]:
        """Return the confs of a session that presents an identity's token and signs as a tenant, if one is given."""
        confs = {TOKEN_FILE: str(self._mounts / TENANTS / name)}
        return {**confs, KEY_FILE: str(self.key_file(signs))} if signs else confs

    def known_to_the_pool(self) -> dict[str, str]:
        """Return the files of the pool's Secret."""
        identities = "".join(
            f'[[identity]]\nname = "{name}"\ntenant = "{tenant}"\nscopes = {scopes}\n'
            f'token_sha256 = ["{hashlib.sha256(self.tokens[name].encode()).hexdigest()}"]\n'
            for name, (tenant, scopes) in _IDENTITIES.items()
        )
        return {"identities.toml": identities, "observers": self.observers_token}

    def signers(self, *tenants: str) -> dict[str, str]:
        """Return the files of the pool's ConfigMap; these tenants' drivers, or both, may sign for their own tenant."""
        chosen = tenants or tuple(self._drivers)
        return {
            "signers.toml": "".join(signer_entry(self._drivers[tenant], tenants=[tenant]) for tenant in chosen),
        }
