# SPDX-License-Identifier: Apache-2.0
"""Calls that report lost bytes to a real writer, which then gives no receipt, even if a repeated call succeeds."""

import errno
from pathlib import Path

import pytest
from writer_process import ROWS, Fault, WriterProcess, rows, write, writer_process

from updraft.errors import SinkError


# Network file systems report lost bytes as EIO and ESTALE, and a delayed write to a full volume as ENOSPC.
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOSPC])
@pytest.mark.parametrize("call", ["close", "fsync", "write"])
@pytest.mark.parametrize("effect", ["done", "undone"])
def test_bytes_that_the_storage_reports_as_lost_get_no_receipt(
    writer: WriterProcess, call: str, number: int, effect: str
) -> None:
    # Linux reports an error only once: the same call succeeds when it is repeated.
    writer.fail(Fault(call, ".updraft$", number, effect, times=1))
    with pytest.raises(SinkError, match=r"; nothing was published$"):
        write(writer)
    writer.becomes_empty()
    assert writer.files() == []


def test_the_loss_of_an_earlier_write_that_a_later_one_reports_is_final(writer: WriterProcess) -> None:
    write(writer, "before.parquet")
    writes = [call for call, _ in writer.calls() if call == "write"]
    assert len(writes) > 2
    # This write stores every byte; the error is about an earlier one.
    writer.fail(Fault("write", "part.parquet", errno.EIO, "done", times=1))
    with pytest.raises(SinkError, match=r"cannot write .*Input/output error; nothing was published"):
        write(writer)
    writer.becomes_empty()
    assert writer.files() == ["before.parquet"]


def test_what_was_at_the_path_stays_when_the_new_bytes_are_lost(writer: WriterProcess) -> None:
    write(writer)
    before = (writer.root / "part.parquet").read_bytes()
    writer.fail(Fault("close", ".updraft$", errno.EIO, times=1))
    with pytest.raises(SinkError):
        write(writer)
    writer.becomes_empty()
    assert (writer.root / "part.parquet").read_bytes() == before


def test_the_file_is_synced_before_its_name_and_its_name_before_the_receipt(writer: WriterProcess) -> None:
    receipt = write(writer)
    assert receipt.rows == rows(writer.root / "part.parquet")
    steps = [(call, path.name[-8:]) for call, path in writer.calls() if call in ("fsync", "rename")]
    assert steps == [("fsync", ".updraft"), ("rename", ".parquet"), ("fsync", writer.root.name[-8:])]


def test_new_directories_are_synced_into_the_ones_above_them(writer: WriterProcess) -> None:
    write(writer, "year=2026/month=11/part.parquet")
    write(writer, "year=2026/month=11/other.parquet")
    synced = [path.relative_to(writer.root.parent) for call, path in writer.calls() if call == "fsync"]
    directories = [str(path) for path in synced if path.suffix != ".updraft"]
    # The last two are the directory with the names of both files.
    assert directories == ["data", "data/year=2026", *2 * ["data/year=2026/month=11"]]


def test_the_next_file_in_a_directory_whose_sync_failed_syncs_it_again(writer: WriterProcess) -> None:
    writer.fail(Fault("fsync", f"{writer.root.name}$", errno.EIO, "done", times=1))
    with pytest.raises(SinkError):
        write(writer, "day=7/part.parquet")
    assert write(writer, "day=7/again.parquet").rows == ROWS
    synced = [path.name for call, path in writer.calls() if call == "fsync" and path == writer.root]
    assert len(synced) == 2


def test_where_directories_cannot_be_synced_files_are_written_all_the_same(writer: WriterProcess) -> None:
    writer.fail(Fault("fsync", "(data|deep)$", errno.EINVAL))
    assert write(writer, "deep/part.parquet").rows == ROWS
    assert writer.files() == ["part.parquet"]


def test_a_new_directory_that_cannot_be_synced_takes_no_file(writer: WriterProcess) -> None:
    writer.fail(Fault("fsync", f"{writer.root.name}$", errno.EIO, "done", times=1))
    with pytest.raises(SinkError, match=r"cannot create .*new directory .*nothing was published"):
        write(writer, "day=1/part.parquet")
    assert writer.files() == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_published_file_whose_name_cannot_be_synced_is_said_to_be_there(writer: WriterProcess, number: int) -> None:
    writer.fail(Fault("fsync", f"{writer.root.name}$", number, times=1))
    with pytest.raises(SinkError, match=r"the file has its name, but a crash of the storage's machine may") as failed:
        write(writer)
    assert "nothing was published" not in failed.value.message
    writer.becomes_empty()
    assert rows(writer.root / "part.parquet") == ROWS


def test_without_sync_nothing_is_synced_and_a_failed_close_is_final_all_the_same(
    failing_calls: Path, tmp_path: Path
) -> None:
    options = ("--no-sync-files", "--root", str(tmp_path / "data"))
    with writer_process(tmp_path, failing_calls, *options) as writer:
        write(writer, "new/part.parquet")
        assert [call for call, _ in writer.calls() if call == "fsync"] == []
        writer.fail(Fault("close", ".updraft$", errno.ESTALE, times=1))
        with pytest.raises(SinkError, match=r"; nothing was published$"):
            write(writer, "new/lost.parquet")
        writer.becomes_empty()
        assert writer.files() == ["part.parquet"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_file_that_could_not_be_made_at_first_is_made_again(writer: WriterProcess, number: int) -> None:
    writer.fail(Fault("open", ".updraft$", number, times=1))
    assert write(writer).rows == rows(writer.root / "part.parquet")
