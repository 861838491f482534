# SPDX-License-Identifier: Apache-2.0
"""Files that count as edited modules of a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from updraft.spark.edited_modules import EditedModules


def test_modules_and_packages_that_were_written_created_or_removed_are_named(tmp_path: Path) -> None:
    package = tmp_path / "package" / "inner"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    (tmp_path / "rates.py").write_text("RATE = 1")
    edited = EditedModules(tmp_path)
    assert edited.look() == []
    (tmp_path / "rates.py").write_text("RATE = 22")
    (package / "new.py").touch()
    (package.parent / "__init__.py").unlink()
    assert edited.look() == ["package/__init__.py", "package/inner/__init__.py", "rates.py"]
    assert edited.look() == []


def test_other_files_do_not_count(tmp_path: Path) -> None:
    edited = EditedModules(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("notes.txt", "data/script.py", "notebook.ipynb"):
        (tmp_path / name).touch()
    assert edited.look() == []


def test_a_directory_that_is_gone_has_no_modules(tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()
    (directory / "a.py").touch()
    edited = EditedModules(directory)
    (directory / "a.py").unlink()
    directory.rmdir()
    assert edited.look() == ["a.py"]


def test_a_directory_of_others_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = tmp_path / "lost+found"
    private.mkdir()
    (tmp_path / "rates.py").touch()
    stat = os.stat

    def refuse(path: str | Path, *arguments: object, **options: object) -> object:
        if Path(path).is_relative_to(private) and Path(path) != private:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *arguments, **options)  # type: ignore[arg-type]

    # The kernel would not refuse root, which may run this test.
    monkeypatch.setattr(os, "stat", refuse)
    edited = EditedModules(tmp_path)
    (tmp_path / "rates.py").unlink()
    assert edited.look() == ["rates.py"]
