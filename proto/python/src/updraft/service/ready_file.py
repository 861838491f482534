# SPDX-License-Identifier: Apache-2.0
"""File that tells scripts a service's addresses and process ids."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from updraft.service.lifecycle import StartError


class ReadyFile:
    """File written when the service is ready and whenever its contents change. Readers never see half of it."""

    def __init__(self, path: Path, content: Callable[[], Mapping[str, object]]) -> None:
        self._path = path
        self._content = content
        self._written = ""

    def update(self) -> None:
        """Write the file if its contents have changed; raise StartError if that fails."""
        content = json.dumps(dict(self._content()), indent=2)
        if content == self._written:
            return
        self._written = content
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            partial.write_text(content)
            partial.replace(self._path)
        except OSError as error:
            raise StartError(f"cannot write --ready-file {self._path}: {error.strerror}") from error
