# SPDX-License-Identifier: Apache-2.0
"""Points libraries to a worker's scratch directory, where they would otherwise write to a place that all share."""

import os
import tempfile
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
