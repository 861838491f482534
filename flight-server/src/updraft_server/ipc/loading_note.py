# SPDX-License-Identifier: Apache-2.0
"""Which module of functions a zygote runs code of while it loads: read where that has ended the zygote."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


class LoadingNote:
    """A file with a module's name; without one, nothing is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def of(self, module: str) -> Iterator[None]:
        """Say that code of this module runs in the block."""
        # Best effort: without a note, a death is told without a module.
        with contextlib.suppress(OSError):
            self._path.write_text(module)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def take(self) -> str:
        """The module whose code ran when the zygote ended, once; empty if it ran none."""
        try:
            module = self._path.read_text()
            self._path.unlink()
        except OSError:
            return ""
        return module
