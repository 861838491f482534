# SPDX-License-Identifier: Apache-2.0
"""Points libraries to a worker's scratch directory, where they would otherwise write to a place that all share."""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

_TEMPORARY = ("TMPDIR", "TEMP", "TMP", "JOBLIB_TEMP_FOLDER")
# Libraries that fail, rather than do without, where they cannot write their cache.
_CACHES = {"NUMBA_CACHE_DIR": "numba", "TRITON_CACHE_DIR": "triton"}


def use_scratch(scratch: Path) -> None:
    """Let temporary files of this process and its children lie in `scratch`, and caches that have no other place.

    HOME stays where it is a directory: models and settings that the operator has put there are found. The same goes
    for its cache directory.
    """
    path = str(scratch)
    home = os.environ.get("HOME", "")
    changes = dict.fromkeys(_TEMPORARY, path)
    changes.update({name: f"{path}/{cache}" for name, cache in _CACHES.items()})
    if not Path(home).is_dir():
        home = changes["HOME"] = path
    if not Path(home, ".cache").is_dir():
        changes["XDG_CACHE_HOME"] = f"{path}/cache"
    os.environ.update(changes)
    # It remembers what it found first, in the zygote perhaps.
    tempfile.tempdir = None


# Directories of a home that several programs share; each program makes its own part when it needs it.
_SHARED_BY_PROGRAMS = ("", ".cache", ".config", ".local", ".local/share", ".local/state")
# Hidden: a worker begins in a directory in which functions see nothing.
_OWN_HOME = ".home"
_CACHE_HOME = "XDG_CACHE_HOME"
# A link costs 25 microseconds, and another file in the scratch directory.
_MOST_ENTRIES = 256


def use_own_home(scratch: Path, writable_paths: Sequence[str]) -> None:
    """Give this process and its children a home below `scratch`, for libraries that keep caches in one.

    Links in it lead to all that lies in the user's own, which can be read. The user's stays where it may be written,
    has too much in it, or cannot be listed.
    """
    users = Path(os.environ.get("HOME", ""))
    is_writable = any(users.resolve().is_relative_to(os.path.realpath(path)) for path in writable_paths)
    if not users.is_absolute() or not users.is_dir() or users == scratch or is_writable:
        return
    cache = os.environ.get(_CACHE_HOME)
    own = f"{scratch}/{_OWN_HOME}"
    directories: list[str] = []
    links: dict[str, str] = {}
    for name in _SHARED_BY_PROGRAMS:
        origin = cache if cache and name == ".cache" else f"{users}/{name}"
        try:
            with os.scandir(origin) as found:
                entries = [entry.name for entry in found]
        except FileNotFoundError:
            entries = []
        except OSError:
            if not name:
                return
            # It stays a link.
            continue
        directory = f"{own}/{name}".rstrip("/")
        if name and directory.rpartition("/")[0] not in directories:
            continue
        directories.append(directory)
        links.pop(directory, None)
        links.update({f"{directory}/{entry}": f"{origin}/{entry}" for entry in entries})
    if len(links) > _MOST_ENTRIES:
        return
    with contextlib.suppress(OSError):
        for directory in directories:
            Path(directory).mkdir(mode=0o700)
        for path, leads_to in links.items():
            # pathlib takes three times as long.
            os.symlink(leads_to, path)  # noqa: PTH211
        os.environ["HOME"] = own
        if cache:
            os.environ[_CACHE_HOME] = f"{own}/.cache"
