# SPDX-License-Identifier: Apache-2.0
"""Home of a worker below its scratch directory: libraries write there, and find the files of the user's home."""

import os
from pathlib import Path

import pytest

from updraft_server.sandbox.scratch import use_own_home


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the user's home."""
    home = tmp_path / "user"
    (home / ".cache" / "huggingface").mkdir(parents=True)
    (home / ".local" / "share").mkdir(parents=True)
    (home / ".cache" / "huggingface" / "model").write_text("weights")
    (home / ".netrc").write_text("password")
    (home / ".local" / "bin").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return home


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    return made


def test_what_the_users_home_has_is_found_and_what_it_lacks_is_made(users: Path, scratch: Path) -> None:
    use_own_home(scratch, ())
    home = Path.home()
    assert home == scratch / ".home"
    assert (home / ".netrc").read_text() == "password"
    assert (home / ".cache" / "huggingface" / "model").read_text() == "weights"
    assert (home / ".local" / "bin").resolve() == users / ".local" / "bin"
    for made in ("nltk_data", ".cache/python-tldextract", ".config/library", ".local/share/library"):
        (home / made).mkdir()
        assert not (users / made).exists()


def test_the_cache_directory_that_the_environment_names_is_the_one_that_is_found(
    users: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "caches" / "pip").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    use_own_home(scratch, ())
    assert Path(os.environ["XDG_CACHE_HOME"]) == scratch / ".home" / ".cache"
    assert [entry.name for entry in (scratch / ".home" / ".cache").iterdir()] == ["pip"]


def test_a_home_in_which_functions_may_write_stays(users: Path, scratch: Path) -> None:
    use_own_home(scratch, (str(users.parent),))
    assert Path.home() == users


def test_a_home_with_too_much_in_it_stays(users: Path, scratch: Path) -> None:
    for number in range(257):
        (users / f"file-{number}").touch()
    use_own_home(scratch, ())
    assert Path.home() == users
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("home", ["", "/nonexistent", "relative"])
def test_nothing_is_made_of_a_home_that_is_none(
    home: str, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative").mkdir()
    monkeypatch.setenv("HOME", home)
    use_own_home(scratch, ())
    assert os.environ["HOME"] == home


def test_a_scratch_directory_that_is_the_home_stays_it(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(scratch))
    use_own_home(scratch, ())
    assert Path.home() == scratch
