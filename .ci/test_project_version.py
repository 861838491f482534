# SPDX-License-Identifier: Apache-2.0
"""A release changes one line: every other file with the version is written from it."""

import importlib.util
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_NEXT = "9.8.7"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("project_version", _ROOT / ".ci/project_version.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = _script()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the files that contain the version."""
    for name in script._PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / name, tmp_path / name)
    return tmp_path


def test_every_place_follows(checkout: Path) -> None:
    assert set(script.stale(checkout, _NEXT, write=True)) == set(script._PLACES)
    assert script.stale(checkout, _NEXT, write=False) == []


def test_nothing_but_the_version_changes(checkout: Path) -> None:
    script.stale(checkout, _NEXT, write=True)
    now = script.decided(_ROOT)
    script.stale(checkout, now, write=True)
    assert all((checkout / name).read_text() == (_ROOT / name).read_text() for name in script._PLACES)


def test_a_place_that_is_gone_is_told(checkout: Path) -> None:
    (checkout / "README.md").write_text("No jar.\n")
    assert script.stale(checkout, script.decided(_ROOT), write=False) == ["README.md"]


def test_no_other_file_spells_it() -> None:
    """If this fails, derive the version, or name the file in project_version.py."""
    searched = ["git", "grep", "--files-with-matches", "--word-regexp", "--fixed-strings", script.decided(_ROOT)]
    found = subprocess.run(searched, cwd=_ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    # Versions of other projects and of past releases.
    elsewhere = ("uv.lock", "CHANGELOG.md", "tests/e2e/wire/", "pyproject.toml")
    assert [name for name in found if name not in script._PLACES and not name.startswith(elsewhere)] == []


def test_the_lock_has_it_too() -> None:
    locked = tomllib.loads((_ROOT / "uv.lock").read_text())["package"]
    own = {package["version"] for package in locked if package["name"].startswith("updraft-")}
    assert own == {script.decided(_ROOT)}
