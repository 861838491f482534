# SPDX-License-Identifier: Apache-2.0
"""Python files that a pool's workers can import from a directory, and which of them were edited."""

import os
from collections.abc import Iterator
from pathlib import Path

_MOST_FILES = 2000


class EditedModules:
    """Modules and packages of a directory, as they were last seen."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = self._written()

    def look(self) -> list[str]:
        """Return the paths of files that were written, created or removed since the last check."""
        before, self._seen = self._seen, self._written()
        paths = self._seen.keys() | before.keys()
        return sorted(path for path in paths if self._seen.get(path) != before.get(path))

    def _written(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for entry in _modules(str(self._directory)):
            try:
                stat = entry.stat()
            except OSError:
                # An editor is replacing the file, or this user may not see it.
                continue
            found[os.path.relpath(entry.path, self._directory)] = (stat.st_mtime_ns, stat.st_size)
            if len(found) == _MOST_FILES:
                break
        return found


def _modules(directory: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(".py") and entry.is_file():
            yield entry
        elif entry.is_dir() and _is_package(Path(entry.path)):
            yield from _modules(entry.path)


def _is_package(directory: Path) -> bool:
    try:
        return (directory / "__init__.py").is_file()
    except OSError:
        # This user may not enter the directory.
        return False
