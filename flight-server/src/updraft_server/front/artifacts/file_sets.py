# SPDX-License-Identifier: Apache-2.0
"""The files of a session under the names that it gives them: what Spark's directory of distributed files is there.

A set never changes, so the same name with other bytes is another directory, and nothing that Python remembers by path
can be stale.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def lay_out(path: Path, building: Path, files: Mapping[str, Path]) -> None:
    """Make `path` a directory of the files, whole or not at all; one that is there already is left as it is."""
    if path.exists():
        return
    try:
        building.mkdir(mode=0o700)
        for name, artifact in files.items():
            if artifact.is_dir():
                (building / name).symlink_to(artifact)
            else:
                os.link(artifact, building / name)
        building.rename(path)
    except OSError:
        # Another exchange of the session may have been quicker.
        if not path.exists():
            raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
