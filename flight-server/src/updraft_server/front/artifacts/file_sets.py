# SPDX-License-Identifier: Apache-2.0
"""The files of a session under the names that it gives them: what Spark's directory of distributed files is there.

A set never changes, so the same name with other bytes is another directory, and nothing that Python remembers by path
can be stale. One that was changed all the same, where a worker could, is laid out anew.
"""

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from updraft_server.front.artifacts.originals import Original
from updraft_server.front.artifacts.stored import DIRECTORY_MODE
from updraft_server.front.artifacts.threads import remove

_CACHE = "__pycache__"


class SetFile(NamedTuple):
    """A file, or an unpacked archive, of a set."""

    path: Path
    original: Original


def lay_out(path: Path, building: Path, files: Mapping[str, SetFile]) -> None:
    """Make `path` a directory of the files, whole or not at all; one that is there already is left as it is."""
    wrong = building.with_suffix(".wrong")
    try:
        if _is_laid_out(path, files):
            return
        if path.exists():
            path.rename(wrong)
        building.mkdir(mode=DIRECTORY_MODE)
        for name, file in files.items():
            if file.path.is_dir():
                (building / name).symlink_to(file.path)
            else:
                file.original.linked(functools.partial(os.link, file.path, building / name))
        building.rename(path)
    except OSError:
        # Another exchange of the session may have been quicker.
        if not _is_laid_out(path, files):
            raise
    finally:
        remove(building, wrong)


def _is_laid_out(path: Path, files: Mapping[str, SetFile]) -> bool:
    """Whether this is the set; what Python has cached there is removed."""
    try:
        names = {entry.name for entry in path.iterdir()}
        if _CACHE in names and _CACHE not in files:
            remove(path / _CACHE)
            names.remove(_CACHE)
        return names == files.keys() and all(_shows(path / name, file.path) for name, file in files.items())
    except FileNotFoundError:
        return False


def _shows(link: Path, target: Path) -> bool:
    if target.is_dir():
        return link.is_symlink() and link.readlink() == target
    return not link.is_symlink() and link.samefile(target)
