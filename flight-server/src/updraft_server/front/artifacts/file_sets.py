# SPDX-License-Identifier: Apache-2.0
"""Directories with the files of a session under the names that it gives them, like Spark's distributed files.

A set never changes. If a name gets other bytes, the files go into another directory, so nothing that Python caches by
path becomes stale. A set that a worker managed to change is laid out again.
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
    """File or unpacked archive in a set."""

    path: Path
    original: Original


def lay_out(path: Path, building: Path, files: Mapping[str, SetFile]) -> None:
    """Lay out the files in the directory `path`, atomically; leave an intact existing directory as it is."""
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
        # Another exchange of the session may have laid it out first.
        if not _is_laid_out(path, files):
            raise
    finally:
        remove(building, wrong)


def _is_laid_out(path: Path, files: Mapping[str, SetFile]) -> bool:
    """Remove Python's bytecode cache from the directory and return whether it shows exactly these files."""
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
