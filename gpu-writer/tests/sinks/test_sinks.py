# SPDX-License-Identifier: Apache-2.0
import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from name_node import NameNode
from object_store import ObjectStore
from pyarrow import fs

from updraft.errors import SinkError, WriteRefusedError
from updraft_writer.pieces import Piece
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.sinks.remote import RemoteStorage
from updraft_writer.sinks.roots import Roots
from updraft_writer.sinks.sink import Storage
from updraft_writer.sinks.stored import RetryPolicy, StoredSink


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(params=["local", "remote"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Return a storage for tmp_path/deep/part.parquet; S3 and other remote storages use the remote one."""
    path = tmp_path / "deep" / "part.parquet"
    return LocalStorage(path) if request.param == "local" else RemoteStorage(fs.LocalFileSystem(), str(path))


def readable(directory: Path) -> list[str]:
    """Return the files that Spark would read below a directory."""
    return [path.name for path in directory.rglob("*") if path.is_file() and path.name[0] not in "._"]


def everything(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file()]


def test_nobody_reads_a_file_before_it_is_published(storage: Storage, tmp_path: Path) -> None:
    storage.open()
    storage.write(b"one ")
    storage.write(b"two")
    assert readable(tmp_path) == []
    assert len(everything(tmp_path)) == 1
    storage.complete()
    storage.publish()
    assert everything(tmp_path) == ["part.parquet"]
    assert (tmp_path / "deep/part.parquet").read_bytes() == b"one two"


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_the_clean_up_of_a_table_sees_an_unfinished_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "part.parquet"
    storage: Storage = (
        LocalStorage(path, in_table=True)
        if kind == "local"
        else RemoteStorage(fs.LocalFileSystem(), str(path), in_table=True)
    )
    storage.open()
    (unfinished,) = readable(tmp_path)
    assert unfinished.startswith("part.parquet.")
    storage.complete()
    storage.publish()
    assert everything(tmp_path) == ["part.parquet"]


def test_a_discarded_file_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    storage.open()
    storage.write(b"one")
    storage.discard()
    storage.discard()
    assert everything(tmp_path) == []


def test_what_was_there_stays_until_the_new_file_is_whole(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/part.parquet").write_bytes(b"old")
    storage.open()
    storage.write(b"new")
    assert (tmp_path / "deep/part.parquet").read_bytes() == b"old"
    storage.complete()
    assert (tmp_path / "deep/part.parquet").read_bytes() == b"old"
    storage.publish()
    assert (tmp_path / "deep/part.parquet").read_bytes() == b"new"


def replacing(name_node: Any, path: Path) -> RemoteStorage:
    """Return a storage with a written new file over an old one."""
    path.write_bytes(b"old")
    storage = RemoteStorage(name_node, str(path))
    storage.open()
    storage.write(b"new")
    return storage


def test_a_name_node_that_renames_to_no_taken_name_replaces_a_file_all_the_same(tmp_path: Path) -> None:
    path, name_node = tmp_path / "part.parquet", NameNode()
    storage = replacing(name_node, path)
    storage.complete()
    storage.publish()
    assert path.read_bytes() == b"new"
    assert everything(tmp_path) == ["part.parquet"]
    # Until the new file has its name, the old one is only hidden.
    assert [(source[:2], target[:2]) for source, target in name_node.renames] == [("pa", "._"), ("._", "pa")]


def test_a_file_that_could_not_be_replaced_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    storage = replacing(NameNode(failing=1), path)
    storage.complete()
    with pytest.raises(OSError, match="Permission denied"):
        storage.publish()
    storage.discard()
    assert path.read_bytes() == b"old"
    assert everything(tmp_path) == ["part.parquet"]


@pytest.mark.parametrize("lost_answers", [1, 2])
async def test_a_rename_whose_answer_was_lost_is_not_done_again(
    tmp_path: Path, threads: ThreadPoolExecutor, lost_answers: int
) -> None:
    path = tmp_path / "part.parquet"
    storage = replacing(NameNode(lost_answers=lost_answers), path)
    await stored(storage, threads, Pauses()).publish()
    assert path.read_bytes() == b"new"
    assert everything(tmp_path) == ["part.parquet"]


def over_an_old_one(store: Any, path: Path) -> RemoteStorage:
    """Return a storage whose new file is as large as the old one that it replaces."""
    path.write_bytes(b"old")
    os.utime(path, (1, 1))
    storage = RemoteStorage(store, str(path))
    storage.open()
    storage.write(b"new")
    return storage


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("fault", [{"lost": "copy"}, {"lost": "delete"}, {"refused": "delete"}])
async def test_an_object_that_was_copied_is_published_whatever_the_store_reported(
    tmp_path: Path, threads: ThreadPoolExecutor, fault: dict[str, str], flat: bool
) -> None:
    path = tmp_path / "part.parquet"
    await stored(over_an_old_one(ObjectStore(flat=flat, **fault), path), threads, Pauses()).publish()
    assert path.read_bytes() == b"new"
    assert everything(tmp_path) == ["part.parquet"]


@pytest.mark.parametrize("flat", [False, True])
async def test_an_object_that_was_not_copied_is_not_published_though_one_of_its_size_is_there(
    tmp_path: Path, threads: ThreadPoolExecutor, flat: bool
) -> None:
    path = tmp_path / "part.parquet"
    sink = stored(over_an_old_one(ObjectStore(flat=flat, refused="copy"), path), threads, Pauses())
    with pytest.raises(SinkError, match="ACCESS_DENIED during copy; nothing was published"):
        await sink.publish()
    await sink.discard()
    assert path.read_bytes() == b"old"
    assert everything(tmp_path) == ["part.parquet"]


async def test_a_file_that_somebody_took_away_before_it_was_published_is_an_error(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    path = tmp_path / "part.parquet"
    storage = replacing(NameNode(), path)
    [hidden] = set(everything(tmp_path)) - {path.name}
    (tmp_path / hidden).unlink()
    with pytest.raises(SinkError, match="whether the file was published is not known"):
        await stored(storage, threads, Pauses()).publish()
    storage.discard()
    assert path.read_bytes() == b"old"


def test_what_was_never_opened_can_be_discarded(storage: Storage) -> None:
    storage.discard()


class Flaky:
    """Storage whose steps fail as often as the test says."""

    def __init__(self, failures: int, number: int = errno.EIO) -> None:
        self.failures = failures
        self.number = number
        self.calls = 0

    def _step(self) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError(self.number, os.strerror(self.number))

    def open(self) -> None:
        self._step()

    def write(self, piece: Piece) -> None:
        self._step()

    def complete(self) -> None:
        self._step()

    def publish(self) -> None:
        self._step()

    def discard(self) -> None:
        self._step()


class Pauses:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def stored(storage: Storage, threads: ThreadPoolExecutor, pauses: Pauses) -> StoredSink:
    return StoredSink(storage, "/data/f", threads, RetryPolicy(attempts=4, first_pause_seconds=1.0), pause=pauses)


class Renaming(Flaky):
    """Storage that fails only in its last step."""

    def complete(self) -> None:
        """Succeed."""


@pytest.mark.parametrize("step", ["open", "publish", "discard"])
async def test_a_step_that_loses_nothing_is_repeated_with_growing_pauses_while_there_is_hope(
    step: str, threads: ThreadPoolExecutor
) -> None:
    storage, pauses = Renaming(failures=3), Pauses()
    await getattr(stored(storage, threads, pauses), step)()
    assert storage.calls == 4
    assert pauses.seconds == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("step", ["write", "complete"])
async def test_a_step_that_may_tell_of_lost_bytes_is_never_repeated(step: str, threads: ThreadPoolExecutor) -> None:
    storage = Flaky(failures=1)
    sink = stored(storage, threads, Pauses())
    with pytest.raises(SinkError, match=f"cannot {step} /data/f: Input/output error; nothing was published"):
        await (sink.write(b"x") if step == "write" else sink.publish())
    assert storage.calls == 1


async def test_a_storage_that_does_not_come_back_is_given_up(threads: ThreadPoolExecutor) -> None:
    storage = Flaky(failures=100)
    with pytest.raises(SinkError, match="cannot create /data/f: Input/output error; nothing was published"):
        await stored(storage, threads, Pauses()).open()
    assert storage.calls == 4


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
async def test_what_will_fail_again_is_not_repeated(number: int, threads: ThreadPoolExecutor) -> None:
    storage = Flaky(failures=1, number=number)
    with pytest.raises(SinkError, match=os.strerror(number)):
        await stored(storage, threads, Pauses()).open()
    assert storage.calls == 1


async def test_an_unfinished_file_that_cannot_be_removed_is_no_error_of_the_client(threads: ThreadPoolExecutor) -> None:
    await stored(Flaky(failures=100, number=errno.EACCES), threads, Pauses()).discard()


def test_files_are_written_below_the_roots_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    roots = Roots((f"file://{inside}",))
    for path in (f"{inside}/a/b.parquet", f"file:{inside}/b.parquet", f"file://{inside}/c"):
        assert isinstance(roots.storage(path), LocalStorage)
    for path in (
        f"{outside}/a",
        str(inside),
        f"{inside}/../outside/a",
        f"{inside}/link/a",
        f"file:{inside}/%2e%2e/outside/a",
        f"s3://bucket{inside}/a",
        f"{inside}-other/a",
    ):
        with pytest.raises(WriteRefusedError):
            roots.storage(path)


@pytest.mark.parametrize("path", ["", "relative/path", "file:/a?b", "s3://bucket/a#b", "/a/\0", "/a" * 5000])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(WriteRefusedError, match="no path to write"):
        Roots(("/",)).storage(path)


def test_a_writer_without_roots_says_so() -> None:
    with pytest.raises(WriteRefusedError, match="started without --root"):
        Roots(()).storage("/data/f")


def test_hadoop_s_names_for_object_stores_are_understood() -> None:
    with pytest.raises(WriteRefusedError, match=r"outside the roots of this writer \(s3://bucket/data\)"):
        Roots(("s3a://bucket/data",)).storage("s3n://other/data/f")


def s3_arguments(storage: Storage) -> dict[str, Any]:
    assert isinstance(storage, RemoteStorage)
    _, (arguments,) = storage.file_system.__reduce__()
    return dict(arguments)


def test_nothing_is_uploaded_to_s3_behind_our_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a configured endpoint, the S3 client does not look up the bucket's region.
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:1", "REGION": "eu-west-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    storage = Roots(("s3://bucket/data",)).storage("s3a://bucket/data/f")
    assert s3_arguments(storage)["background_writes"] is False
    assert s3_arguments(storage)["region"] == "eu-west-1"


def test_a_storage_that_pyarrow_does_not_reach_is_a_clear_error() -> None:
    with pytest.raises(SinkError, match="cannot reach nosuch://host/data/f"):
        Roots(("nosuch://host/data",)).storage("nosuch://host/data/f")


def test_hdfs_without_its_library_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    with pytest.raises(
        SinkError, match=r"hdfs://namenode:8020/data/f: Unable to load lib.*libhdfs.so \(ARROW"
    ) as error:
        Roots(("hdfs://namenode:8020/data",)).storage("hdfs://namenode:8020/data/f")
    assert "\n" not in str(error.value)


def test_a_root_says_how_its_storage_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    roots = Roots(
        (
            "s3a://bucket/data?endpoint_override=127.0.0.1:1&scheme=http&region=eu-north-1",
            "gs://anonymous@bucket/data?endpoint_override=127.0.0.1:1",
            "abfss://container@account.dfs.core.windows.net/data?credential_kind=anonymous",
        )
    )
    reached = [
        roots.storage(f"{place}/data/f")
        for place in ("s3://bucket", "gs://bucket", "abfss://container@account.dfs.core.windows.net")
    ]
    assert all(isinstance(storage, RemoteStorage) for storage in reached)
    told = {"region": "eu-north-1", "endpoint_override": "127.0.0.1:1", "scheme": "http", "background_writes": False}
    assert s3_arguments(reached[0]).items() >= told.items()
    _, gs, abfs = (storage.file_system for storage in reached if isinstance(storage, RemoteStorage))
    assert (gs.type_name, abfs.type_name) == ("gcs", "abfs")


@pytest.mark.parametrize("root", ["s3://key:secret@bucket/data", "file:///data?region=here", "relative"])
def test_a_root_that_is_none_or_has_secrets_is_refused(root: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is looked at
        Roots((root,))
    assert "secret" not in str(refused.value)
