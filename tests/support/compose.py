# SPDX-License-Identifier: Apache-2.0
"""Services of deploy/compose/compose.yaml, as Compose reads them."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.support.paths import REPOSITORY

FILE = REPOSITORY / "deploy/compose/compose.yaml"
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")


def services() -> dict[str, dict[str, Any]]:
    """Return the services by name; variables have their default values."""
    text = _VARIABLE.sub(lambda found: found[1], FILE.read_text())
    assert "$" not in text
    return dict(yaml.safe_load(text)["services"])
