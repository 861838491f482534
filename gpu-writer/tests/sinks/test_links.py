# SPDX-License-Identifier: Apache-2.0
"""Directories below a root that are replaced by links after the path was checked: nothing is written elsewhere."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from updraft.errors import SinkError, WriteRefusedError
from updraft_writer.sinks.roots import Roots
from updraft_writer.sinks.sink import Storage

STEPS = ["open", "publish"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/table/day=1").mkdir(parents=True)
    return tmp_path / "root"


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def descriptors(directory: Path) -> list[Path]:
    """Return the open paths below the directory; threads of other tests may still open and close theirs."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(descriptor.readlink())
    return sorted(path for path in found if path.is_relative_to(directory))


def written(storage: Storage) -> None:
    storage.open()
    storage.write(b"rows")
    storage.complete()
    storage.publish()


def replace_by_link(directory: Path, target: Path) -> None:
    directory.rename(directory.with_name("aside"))
    directory.symlink_to(target)


@pytest.mark.parametrize("place", ["table", "table/day=1"])
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_a_directory_that_a_link_replaces_leads_nowhere(
    root: Path, outside: Path, place: str, sync: bool, step: str
) -> None:
    storage = Roots((str(root),), sync_files=sync).storage(f"{root}/table/day=1/f.parquet")
    if step != "open":
        storage.open()
        storage.write(b"rows")
    # Files that the writer would create, rename or remove there if it followed the link.
    deep = outside / "day=1" if place == "table" else outside
    deep.mkdir(exist_ok=True)
    for hidden in root.rglob("*.updraft"):
        (deep / hidden.name).write_bytes(b"of somebody else")
    before = files(outside)
    if step == "publish":
        storage.complete()
    replace_by_link(root / place, outside)
    with pytest.raises(OSError, match="has become a link or a file, and was a directory when the path was resolved"):
        getattr(storage, step)()
    assert files(outside) == before


def test_a_file_that_is_given_up_is_removed_where_it_was_made(root: Path, outside: Path) -> None:
    storage = Roots((str(root),)).storage(f"{root}/table/day=1/f.parquet")
    storage.open()
    [hidden] = root.rglob("*.updraft")
    (outside / "day=1").mkdir()
    (outside / "day=1" / hidden.name).write_bytes(b"of somebody else")
    before = files(outside)
    replace_by_link(root / "table", outside)
    storage.discard()
    assert files(outside) == before
    assert not list((root / "aside").rglob("*.updraft"))


def test_a_file_leaves_no_descriptor_behind(root: Path) -> None:
    before = descriptors(root)
    for end in ("publish", "discard"):
        storage = Roots((str(root),)).storage(f"{root}/table/{end}")
        storage.open()
        storage.complete()
        getattr(storage, end)()
    assert descriptors(root) == before


def test_missing_directories_are_not_created_through_a_link(root: Path, outside: Path) -> None:
    storage = Roots((str(root),)).storage(f"{root}/table/new/deep/f.parquet")
    replace_by_link(root / "table", outside)
    with pytest.raises(OSError, match="'table' has become a link"):
        storage.open()
    assert files(outside) == []


def test_a_link_that_takes_the_hidden_name_is_not_followed(root: Path, outside: Path) -> None:
    storage = Roots((str(root),)).storage(f"{root}/f.parquet")
    storage.open()
    [hidden] = root.glob("*.updraft")
    hidden.unlink()
    hidden.symlink_to(outside / "target")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        storage.open()
    assert files(outside) == []


def test_links_that_stay_below_the_root_work(root: Path) -> None:
    (root / "relative").symlink_to("table")
    (root / "absolute").symlink_to(root / "table")
    roots = Roots((str(root),))
    for name in ("relative", "absolute"):
        written(roots.storage(f"{root}/{name}/new/{name}.parquet"))
        assert (root / f"table/new/{name}.parquet").read_bytes() == b"rows"


def test_a_link_that_leaves_the_root_is_refused(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    with pytest.raises(WriteRefusedError, match="lies outside the roots"):
        Roots((str(root),)).storage(f"{root}/link/f.parquet")


def test_links_in_a_circle_are_refused(root: Path) -> None:
    (root / "circle").symlink_to("circle")
    with pytest.raises(WriteRefusedError, match="no path to write: Symlink loop"):
        Roots((str(root),)).storage(f"{root}/circle/f.parquet")


def test_a_link_that_goes_while_it_is_read_is_an_error_of_the_storage(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = Roots((str(root),))
    (root / "link").symlink_to(outside)

    def gone(path: str) -> str:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    monkeypatch.setattr(os, "readlink", gone)
    with pytest.raises(SinkError, match=f"cannot reach {root}/link/f.parquet: No such file or directory"):
        roots.storage(f"{root}/link/f.parquet")


@pytest.mark.parametrize("sync", [True, False])
def test_a_root_that_is_a_link_or_does_not_exist_yet_works(tmp_path: Path, sync: bool) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "place")
    for index, root in enumerate((tmp_path / "link", tmp_path / "new/root")):
        written(Roots((str(root),), sync_files=sync).storage(f"file:{root}/deep/{index}.parquet"))
        assert (root / f"deep/{index}.parquet").read_bytes() == b"rows"


def test_links_that_lead_to_each_other_are_refused(root: Path) -> None:
    (root / "one").symlink_to("other")
    (root / "other").symlink_to("one")
    with pytest.raises(WriteRefusedError, match="Symlink loop"):
        Roots((str(root),)).storage(f"{root}/one/f.parquet")
