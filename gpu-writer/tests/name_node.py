# SPDX-License-Identifier: Apache-2.0
"""Local file system that renames as HDFS does, and fails when a test says so."""

import errno
import os
from pathlib import Path
from typing import Any

from pyarrow import fs


class NameNode:
    """File system that renames only to free names; `lost_answers` renames take effect and then report a failure."""

    type_name = "hdfs"

    def __init__(self, *, lost_answers: int = 0, failing: int = 0) -> None:
        self._files = fs.LocalFileSystem()
        self.lost_answers = lost_answers
        self.failing = failing
        self.renames: list[tuple[str, str]] = []

    def move(self, source: str, target: str) -> None:
        if self.failing and source.endswith(".updraft") and "replaced" not in source:
            self.failing -= 1
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        if Path(target).exists() or not Path(source).exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._files.move(source, target)
        self.renames.append((Path(source).name, Path(target).name))
        if self.lost_answers:
            self.lost_answers -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)
