# SPDX-License-Identifier: Apache-2.0
"""What a guide tells its reader to type and to set, for a test that does it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.paths import REPOSITORY

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Guide:
    """A page of docs/guides."""

    name: str

    @property
    def commands(self) -> list[str]:
        """The blocks of bash, in order."""
        return self._blocks("bash")

    @property
    def confs(self) -> dict[str, str]:
        """The settings of its jobs."""
        lines = "".join(self._blocks("properties")).splitlines()
        return dict(line.split(maxsplit=1) for line in lines if line)

    def _blocks(self, language: str) -> list[str]:
        text = (REPOSITORY / f"docs/guides/{self.name}.md").read_text()
        found = [code for spoken, code in _BLOCK.findall(text) if spoken == language]
        assert found, f"{self.name} has no block of {language}"
        return found
