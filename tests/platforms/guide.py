# SPDX-License-Identifier: Apache-2.0
"""Commands and confs of a guide, for a test that follows it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.paths import REPOSITORY

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Guide:
    """Page of docs/guides."""

    name: str

    @property
    def commands(self) -> list[str]:
        """Return the blocks of bash, in order."""
        return self._blocks("bash")

    @property
    def confs(self) -> dict[str, str]:
        """Return the confs of the guide's jobs."""
        lines = "".join(self._blocks("properties")).splitlines()
        return dict(line.split(maxsplit=1) for line in lines if line)

    def _blocks(self, language: str) -> list[str]:
        text = (REPOSITORY / f"docs/guides/{self.name}.md").read_text()
        found = [code for spoken, code in _BLOCK.findall(text) if spoken == language]
        assert found, f"{self.name} has no block of {language}"
        return found
