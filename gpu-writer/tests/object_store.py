# SPDX-License-Identifier: Apache-2.0
"""Local file system that moves as object stores do: by a copy and then a deletion, either of which may fail."""

from typing import Any

from pyarrow import fs


class ObjectStore:
    """File system that loses the answer of its first `lost` step (copy or delete), or skips that step if `refused`.

    `flat` accounts of Azure cannot move at all. Errors have no errno, like those of S3.
    """

    type_name = "s3"

    def __init__(self, *, lost: str = "", refused: str = "", flat: bool = False) -> None:
        self._files = fs.LocalFileSystem()
        self._lost = lost
        self._refused = refused
        self._flat = flat

    def move(self, source: str, target: str) -> None:
        if self._flat:
            raise NotImplementedError("no hierarchical namespace")
        self.copy_file(source, target)
        self.delete_file(source)

    def copy_file(self, source: str, target: str) -> None:
        self._step("copy", lambda: self._files.copy_file(source, target))

    def delete_file(self, path: str) -> None:
        self._step("delete", lambda: self._files.delete_file(path))

    def _step(self, name: str, act: Any) -> None:
        if self._refused == name:
            self._refused = ""
            raise OSError(f"AWS Error ACCESS_DENIED during {name}")
        act()
        if self._lost == name:
            self._lost = ""
            raise OSError(f"AWS Error NETWORK_CONNECTION during {name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)
