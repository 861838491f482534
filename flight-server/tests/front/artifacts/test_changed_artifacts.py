# SPDX-License-Identifier: Apache-2.0
"""If no kernel feature keeps workers from writing, the pool detects their changes before it hands a file on."""

import hashlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from artifact_clients import MODULE, VALUE, Fixture, artifact, fixture, member, parts, tar_of
from front_harness import Running

from updraft.v1.exchange_pb2 import Artifact
from updraft_server.front.artifacts import originals
from updraft_server.front.artifacts.needs import ArtifactKey, Form
from updraft_server.front.artifacts.originals import Original, original

OTHER = b"X" * len(VALUE)


def rewrite(path: Path) -> None:
    """Rewrite a file as a worker of the same user could, and restore its times."""
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(b"X" * before.st_size)
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(OTHER)
    beside.chmod(0o444)
    beside.rename(path)


def link_elsewhere(path: Path) -> None:
    elsewhere = path.with_suffix(".elsewhere")
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)


def link_twice(path: Path) -> None:
    """Replace the file by a link to the right file through a path that can be redirected later."""
    [target] = [file for file in (path.parents[2] / "stored").iterdir() if file.samefile(path)]
    path.unlink()
    path.symlink_to(target)


async def give(pool: Fixture, data: bytes, need: Artifact) -> set[bytes]:
    client = await pool.client(need)
    wanted = await client.wanted()
    if wanted:
        await client.send(*parts(data, 4096))
        assert await client.wanted() == set()
    await client.end()
    return wanted


@pytest.mark.parametrize("change", [rewrite, replace, Path.unlink, link_elsewhere])
async def test_a_changed_broadcast_is_asked_for_again(
    running_front: Running, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    need = artifact(VALUE, broadcast_id=1)
    async with fixture(running_front, tmp_path) as pool:
        await give(pool, VALUE, need)
        used_bytes = pool.used_bytes
        change(Path(pool.provided.broadcasts["1"]))
        assert await give(pool, VALUE, need) == {need.sha256}
        assert pool.broadcast(1) == VALUE
        assert pool.used_bytes == used_bytes
        assert await give(pool, VALUE, need) == set()


@pytest.mark.parametrize("change", [rewrite, replace, Path.unlink, link_elsewhere, link_twice])
async def test_a_changed_file_of_a_set_is_never_handed_on(
    running_front: Running, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    need = artifact(MODULE, file_name="answers.py")
    async with fixture(running_front, tmp_path) as pool:
        await give(pool, MODULE, need)
        change(pool.file("answers.py"))
        # The pool recreates a redirected link, and asks for changed bytes again.
        await give(pool, MODULE, need)
        assert pool.file("answers.py").read_bytes() == MODULE
        assert not pool.file("answers.py").is_symlink()


async def test_what_was_put_beside_the_files_of_a_set_goes(running_front: Running, tmp_path: Path) -> None:
    need = artifact(MODULE, file_name="answers.py")
    async with fixture(running_front, tmp_path) as pool:
        await give(pool, MODULE, need)
        directory = pool.file("answers.py").parent
        (directory / "json.py").write_bytes(MODULE)
        (directory / "__pycache__").mkdir()
        assert await give(pool, MODULE, need) == set()
        assert [path.name for path in pool.file("answers.py").parent.iterdir()] == ["answers.py"]


async def test_a_changed_archive_is_asked_for_again(
    running_front: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.artifacts.originals._SECONDS_BETWEEN_LOOKS", 0)
    archive = tar_of(member("run", 5), data=b"hello")
    need = artifact(archive, directory_name="env")
    async with fixture(running_front, tmp_path) as pool:
        await give(pool, archive, need)
        assert await give(pool, archive, need) == set()
        rewrite(pool.file("env").resolve() / "run")
        assert await give(pool, archive, need) == {need.sha256}
        assert pool.file("env/run").read_bytes() == b"hello"


async def test_links_of_the_pool_are_no_change(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        for names in (["a.py"], ["b.py"], ["a.py", "b.py"]):
            client = await pool.client(*(artifact(MODULE, file_name=name) for name in names))
            if await client.wanted():
                await client.send(*parts(MODULE))
                await client.wanted()
            await client.end()
        assert len(pool.recorder.assignments) == 3
        assert len({pool.file("a.py", 0).stat().st_ino, pool.file("b.py", 1).stat().st_ino}) == 1


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def tree(directory: Path, clock: Clock | None = None) -> Original:
    (directory / "lib" / "deep").mkdir(parents=True)
    (directory / "lib" / "deep" / "module.py").write_bytes(MODULE)
    (directory / "lib" / "link").symlink_to("deep")
    (directory / "__pycache__").mkdir()
    (directory / "__pycache__" / "own.pyc").write_bytes(b"its own")
    return original(ArtifactKey(bytes(32), 0, Form.DIRECTORY), directory, clock or Clock())


def another_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc")


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes": lambda path: rewrite(path / "lib/deep/module.py"),
    "a mode": lambda path: (path / "lib/deep/module.py").chmod(0o755),
    "a file more": lambda path: (path / "lib/json.py").touch(),
    "a file less": lambda path: (path / "lib/deep/module.py").unlink(),
    "another link": lambda path: another_link(path / "lib/link"),
    "another name": lambda path: (path / "lib/link").rename(path / "lib/linked"),
    "a directory more": lambda path: (path / "new").mkdir(),
    "nothing left": lambda path: path.rename(path.with_name("gone")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_of_a_tree_shows(tmp_path: Path, change: Callable[[Path], object]) -> None:
    unpacked = tree(tmp_path / "t")
    assert unpacked.still()
    change(tmp_path / "t")
    assert not unpacked.still()


@pytest.mark.parametrize("where", ["lib/__pycache__/new.pyc", "__pycache__/own.pyc", "__pycache__/deep/er.pyc"])
def test_bytecode_that_somebody_has_written_is_removed(tmp_path: Path, where: str) -> None:
    unpacked = tree(tmp_path / "t")
    (tmp_path / "t" / where).parent.mkdir(exist_ok=True)
    (tmp_path / "t" / where).write_bytes(b"poison")
    assert unpacked.still()
    assert list((tmp_path / "t").rglob("*.pyc")) == []
    assert unpacked.still()


def test_a_tree_is_looked_at_again_after_a_hundred_times_as_long(tmp_path: Path) -> None:
    clock = Clock()
    clock.step = 1.0
    unpacked = tree(tmp_path / "t", clock)
    clock.step = 0.0
    (tmp_path / "t" / "new").touch()
    clock.now += 99
    assert unpacked.still()
    clock.now += 1
    assert not unpacked.still()


def test_bytes_decide_where_only_times_have_changed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(VALUE)
    key = ArtifactKey(hashlib.sha256(VALUE).digest(), len(VALUE), Form.FILE)
    file = original(key, tmp_path / "f")
    os.link(tmp_path / "f", tmp_path / "g")
    assert file.still()
    rewrite(tmp_path / "g")
    assert not file.still()


def test_a_link_is_no_cover_for_a_change(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(VALUE)
    key = ArtifactKey(hashlib.sha256(VALUE).digest(), len(VALUE), Form.FILE)
    file = original(key, tmp_path / "f")
    rewrite(tmp_path / "f")
    file.linked(lambda: os.link(tmp_path / "f", tmp_path / "g"))
    assert not file.still()


@pytest.mark.parametrize(("links", "is_intact"), [(1, True), (100, False)])
def test_a_link_that_is_made_during_the_comparison_is_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: int, is_intact: bool
) -> None:
    path = tmp_path / "f"
    path.write_bytes(VALUE)
    file = original(ArtifactKey(hashlib.sha256(VALUE).digest(), len(VALUE), Form.FILE), path)
    (tmp_path / "set").hardlink_to(path)
    compare, names = originals._digest, (tmp_path / f"set-{number}" for number in range(links))

    def compare_while_the_front_links(compared: Path) -> bytes:
        for name in itertools.islice(names, 1):
            name.hardlink_to(path)
        return compare(compared)

    monkeypatch.setattr(originals, "_digest", compare_while_the_front_links)
    assert file.still() is is_intact
