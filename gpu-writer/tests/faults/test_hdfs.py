# SPDX-License-Identifier: Apache-2.0
"""HDFS through pyarrow's own code and a libhdfs of ours: lost answers, and errno 255, which hides a Java exception."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from writer_process import ROWS, THREE_ATTEMPTS, Fault, WriterProcess, build_library, rows, write, writer_process

from updraft.errors import SinkError

ROOT = "hdfs://namenode:8020/tables"
# The errno that libhdfs returns for Java exceptions that it does not map.
UNKNOWN = 255


@pytest.fixture(scope="module")
def shared(failing_calls: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    java = shutil.which("java")
    if java is None:
        pytest.skip("no Java: pyarrow loads libjvm before libhdfs")
    directory = tmp_path_factory.mktemp("writer")
    library = build_library("libhdfs", tmp_path_factory.mktemp("hadoop"))
    environment = {
        "JAVA_HOME": str(Path(java).resolve().parents[1]),
        "ARROW_LIBHDFS_DIR": str(library.parent),
        "LIBHDFS_ROOT": str(directory / "data"),
    }
    options = ("--root", ROOT)
    with writer_process(
        directory, failing_calls, *options, environment=environment, constants=THREE_ATTEMPTS
    ) as writer:
        yield writer


def published(writer: WriterProcess) -> Path:
    return writer.root / "tables" / "part.parquet"


def renames(writer: WriterProcess) -> list[str]:
    """Return the new names of all renames, without their unique parts."""
    names = [path.name for call, path in writer.calls() if call == "rename"]
    return ["aside" if ".replaced." in name else name for name in names]


def test_a_file_is_written_and_replaced(writer: WriterProcess) -> None:
    for _ in range(2):
        assert write(writer, root=ROOT).rows == ROWS == rows(published(writer))
    assert renames(writer) == ["part.parquet", "aside", "part.parquet"]


@pytest.mark.parametrize("call", ["write", "close"])
def test_lost_bytes_get_no_receipt(writer: WriterProcess, call: str) -> None:
    writer.fail(Fault(call, ".updraft$", UNKNOWN, "done", times=1))
    with pytest.raises(SinkError, match=r"\[errno 255\].*the Java exception to .*stderr\); nothing was published$"):
        write(writer, root=ROOT)
    writer.becomes_empty()
    assert writer.files() == []


def test_what_hides_behind_errno_255_is_not_repeated(writer: WriterProcess) -> None:
    write(writer, root=ROOT)
    before = published(writer).read_bytes()
    writer.fail(Fault("rename", "/part.parquet", UNKNOWN, times=1))
    with pytest.raises(SinkError, match=r"\[errno 255\].*; nothing was published$"):
        write(writer, root=ROOT)
    writer.becomes_empty()
    # The rename that failed, and the one that restored the old file.
    assert renames(writer) == ["aside", "part.parquet", "part.parquet"]
    assert published(writer).read_bytes() == before
    assert writer.files() == ["part.parquet"]


def test_an_old_file_that_cannot_be_brought_back_is_said_to_be_aside(writer: WriterProcess) -> None:
    write(writer, root=ROOT)
    before = published(writer).read_bytes()
    writer.fail(Fault("rename", "/part.parquet", UNKNOWN))
    with pytest.raises(SinkError, match=r"was renamed to .*\.replaced\..*the existing file may still have its"):
        write(writer, root=ROOT)
    writer.becomes_empty()
    [aside] = writer.files()
    kept = published(writer).parent / aside
    assert kept.read_bytes() == before
    kept.unlink()


@pytest.mark.parametrize("number", [UNKNOWN, errno.EIO])
@pytest.mark.parametrize("replacing", [False, True])
def test_a_rename_whose_answer_was_lost_gets_its_receipt(writer: WriterProcess, number: int, replacing: bool) -> None:
    if replacing:
        write(writer, root=ROOT)
    writer.fail(Fault("rename", "/part.parquet", number, "done"))
    assert write(writer, root=ROOT).rows == rows(published(writer))
    assert writer.files() == ["part.parquet"]


def test_a_name_node_that_answers_no_lookup_is_not_taken_for_one_without_the_file(writer: WriterProcess) -> None:
    write(writer, root=ROOT)
    # The first two lookups are the writer's and the name node's before the rename. pyarrow reports later failures as a
    # missing file.
    writer.fail(
        Fault("rename", "/part.parquet", UNKNOWN, "done"),
        Fault("open", "/part.parquet", UNKNOWN, skip=2),
    )
    with pytest.raises(SinkError, match=r"; whether the file was published is not known$"):
        write(writer, root=ROOT)
    writer.becomes_empty()
    writer.fail()
    assert rows(published(writer)) == ROWS
    [aside] = set(writer.files()) - {"part.parquet"}
    (published(writer).parent / aside).unlink()


def test_a_hidden_file_that_cannot_be_looked_up_does_not_prove_that_it_was_renamed(writer: WriterProcess) -> None:
    writer.fail(Fault("rename", "/part.parquet", UNKNOWN), Fault("open", ".updraft$", UNKNOWN, skip=1, times=6))
    with pytest.raises(SinkError, match=r"; whether the file was published is not known$"):
        write(writer, root=ROOT)
    writer.becomes_empty()
    assert writer.files() == []
