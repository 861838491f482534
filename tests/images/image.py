# SPDX-License-Identifier: Apache-2.0
"""Image in buildah's storage: its configuration and its files."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

_ENVIRONMENT = "opt/updraft"
_SBOM = "io.updraft.sbom"


@dataclass(frozen=True)
class Image:
    """Image whose root file system is mounted at `root` while it is open."""

    config: dict[str, Any]
    root: Path

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.config["Labels"])

    @property
    def environment(self) -> Path:
        """Return the Python environment that the image adds to its base."""
        return self.root / _ENVIRONMENT

    @cached_property
    def packages(self) -> dict[str, str]:
        """Return the versions of the installed Python packages, by name."""
        (site,) = self.environment.glob("lib/python*/site-packages")
        return {normalized(found.metadata["Name"]): found.version for found in distributions(path=[str(site)])}

    @cached_property
    def bill_of_materials(self) -> dict[str, Any]:
        """Return the document whose path a label gives."""
        return dict(json.loads((self.root / self.labels[_SBOM].lstrip("/")).read_text()))

    @property
    def size_bytes(self) -> int:
        """Return the size of that environment."""
        return sum(file.lstat().st_size for file in self.environment.rglob("*"))


@contextmanager
def opened(name: str) -> Iterator[Image]:
    """Mount an image for the block, in a container that is never started."""
    container = _buildah("from", "--pull-never", name)
    try:
        root = Path(_buildah("mount", container))
        config = json.loads(_buildah("inspect", "--type", "image", name))["OCIv1"]["config"]
        yield Image(config, root)
    finally:
        _buildah("rm", container)


def normalized(name: str) -> str:
    """Return a package's name as the lock file writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _buildah(*arguments: str) -> str:
    ran = subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, f"{ran.stderr.strip()} (make images builds what is tested here)"
    return ran.stdout.strip()
