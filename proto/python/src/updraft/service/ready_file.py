# SPDX-License-Identifier: Apache-2.0
"""The file that tells scripts where a service really listens and which processes it has."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path


class ReadyFile:
    """Written once the service is ready and again when what it says changes; a reader never sees half of it."""

    def __init__(self, path: Path, content: Callable[[], Mapping[str, object]]) -> None:
        self._path = path
        self._content = content
        self._written = ""

    def update(self) -> None:
        """Write the file if what it says has changed; raises OSError."""
        content = json.dumps(dict(self._content()), indent=2)
        if content == self._written:
            return
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        partial.write_text(content)
        partial.replace(self._path)
        self._written = content
