# SPDX-License-Identifier: Apache-2.0
"""Redirection of libraries to a worker's scratch directory, away from places that all workers share."""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

_TEMPORARY = ("TMPDIR", "TEMP", "TMP", "JOBLIB_TEMP_FOLDER")
# Libraries that fail if they cannot write their cache.
_CACHES = {"NUMBA_CACHE_DIR": "numba", "TRITON_CACHE_DIR": "triton"}


def use_scratch(scratch: Path) -> None:
    """Make this process and its children put temporary files, and caches that have no other place, in `scratch`.

    HOME stays unchanged if it is a directory, so that libraries find models and settings that the operator has put
    there. If HOME contains a cache directory, libraries continue to use that directory.
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
    # tempfile remembers the first directory that it chose, possibly one that it chose in the zygote.
    tempfile.tempdir = None


# Directories in a home where several programs make entries. Here they are real directories, not links, so that a
# program can make new entries.
_SHARED_BY_PROGRAMS = ("", ".cache", ".config", ".local", ".local/share", ".local/state")
# Hidden name, so that a worker's scratch directory looks empty to functions at the start.
_OWN_HOME = ".home"
_CACHE_HOME = "XDG_CACHE_HOME"
# Each link takes 25 microseconds to make, and is one more file in the scratch directory.
_MOST_ENTRIES = 256


def use_own_home(scratch: Path, writable_paths: Sequence[str]) -> None:
    """Give this process and its children a home below `scratch`, for libraries that keep caches in the home directory.

    Links in the new home lead to everything in the user's home, which stays readable. HOME does not change if the
    user's home is writable, has too many entries, or cannot be listed.
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
            # The directory cannot be listed, so one link leads to the whole directory.
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
            # pathlib's symlink_to takes three times as long.
            os.symlink(leads_to, path)  # noqa: PTH211
        os.environ["HOME"] = own
        if cache:
            os.environ[_CACHE_HOME] = f"{own}/.cache"
