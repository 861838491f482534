# SPDX-License-Identifier: Apache-2.0
"""What may be shipped: audit.toml."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

POLICY_FILE = Path(__file__).with_name("audit.toml")


class AuditError(Exception):
    """Raised when something cannot be looked up or read: nothing is known then, which is no pass."""


class Ignored(BaseModel):
    """A known vulnerability that is let pass for a while."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    reason: str
    until: date


class Policy(BaseModel):
    """The rules of `make audit`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_licences: frozenset[str]
    """SPDX identifiers."""
    licence_names: dict[str, str] = {}
    """Names that packages use, with the SPDX expression that each means."""
    licences: dict[str, str] = {}
    """SPDX expressions of packages whose metadata does not say."""
    ignored: tuple[Ignored, ...] = ()

    def ignores(self, vulnerability: str, today: date) -> bool:
        """Whether a vulnerability is let pass today."""
        return any(entry.id == vulnerability and today <= entry.until for entry in self.ignored)


def read_policy(path: Path = POLICY_FILE) -> Policy:
    """The rules in a file; raises AuditError."""
    try:
        return Policy.model_validate(tomllib.loads(path.read_text()))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise AuditError(f"{path} cannot be used: {error}") from None
