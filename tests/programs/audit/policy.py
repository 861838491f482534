# SPDX-License-Identifier: Apache-2.0
"""Policy on the packages that may ship with Updraft: audit.toml."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

POLICY_FILE = Path(__file__).with_name("audit.toml")


class AuditError(Exception):
    """Raised if a look-up or a file fails, because an audit must not pass without all of its data."""


class Ignored(BaseModel):
    """Known vulnerability that is ignored for a while."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    reason: str
    until: date


class Policy(BaseModel):
    """Rules of `make audit`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_licences: frozenset[str]
    """SPDX identifiers."""
    licence_names: dict[str, str] = {}
    """Names that packages use for licenses, each with its SPDX expression."""
    licences: dict[str, str] = {}
    """SPDX expressions for packages whose metadata names no license."""
    ignored: tuple[Ignored, ...] = ()

    def ignores(self, vulnerability: str, today: date) -> bool:
        """Return whether a vulnerability is ignored today."""
        return any(entry.id == vulnerability and today <= entry.until for entry in self.ignored)


def read_policy(path: Path = POLICY_FILE) -> Policy:
    """Return the rules in a file; raise AuditError."""
    try:
        return Policy.model_validate(tomllib.loads(path.read_text()))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise AuditError(f"{path} cannot be used: {error}") from None
