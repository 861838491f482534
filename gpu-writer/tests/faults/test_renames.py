# SPDX-License-Identifier: Apache-2.0
"""Renames that take effect and report an error, or the reverse: the client's error matches what is in the directory."""

import errno

import pytest
from writer_process import ROWS, Fault, WriterProcess, rows, write

from updraft.errors import SinkError

# EACCES and ENOENT are not transient: NFS returns ENOENT for the second of two requests if the first took effect.
ERRORS = [errno.EIO, errno.ESTALE, errno.ENOENT, errno.EACCES]


def renames(writer: WriterProcess) -> int:
    return [call for call, _ in writer.calls()].count("rename")


@pytest.mark.parametrize("number", ERRORS)
def test_a_rename_that_took_effect_gets_its_receipt_whatever_it_reported(writer: WriterProcess, number: int) -> None:
    writer.fail(Fault("rename", "part.parquet", number, "done"))
    assert write(writer).rows == ROWS == rows(writer.root / "part.parquet")
    assert renames(writer) == 1
    # Its name is made durable like that of any other file.
    assert writer.calls()[-1][0] == "close"
    assert ("fsync", writer.root) in writer.calls()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_rename_without_effect_is_tried_again_when_its_error_may_pass(writer: WriterProcess, number: int) -> None:
    write(writer)
    writer.fail(Fault("rename", "part.parquet", number, times=1))
    assert write(writer).rows == rows(writer.root / "part.parquet")
    assert renames(writer) == 2


@pytest.mark.parametrize(("number", "attempts"), [(errno.EIO, 3), (errno.EACCES, 1)])
def test_a_rename_that_never_takes_effect_publishes_nothing_and_says_so(
    writer: WriterProcess, number: int, attempts: int
) -> None:
    writer.fail(Fault("rename", "part.parquet", number))
    with pytest.raises(SinkError, match=r"cannot publish .*; nothing was published$"):
        write(writer)
    assert renames(writer) == attempts
    writer.becomes_empty()
    assert writer.files() == []


@pytest.mark.parametrize("effect", ["done", "undone"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_when_the_names_cannot_be_looked_up_either_the_error_does_not_say_what_nobody_knows(
    writer: WriterProcess, effect: str, number: int
) -> None:
    # The directory is opened twice before, for the file and for the rename.
    writer.fail(
        Fault("rename", "part.parquet", number, effect), Fault("open", f"{writer.root.name}$", errno.EIO, skip=2)
    )
    with pytest.raises(SinkError, match=r"cannot publish .*; whether the file was published is not known$"):
        write(writer)
    writer.becomes_empty()
    assert writer.files() == (["part.parquet"] if effect == "done" else [])


@pytest.mark.parametrize("effect", ["done", "undone"])
def test_a_look_that_fails_for_a_moment_is_repeated_before_anything_is_decided(
    writer: WriterProcess, effect: str
) -> None:
    writer.fail(
        Fault("rename", "part.parquet", errno.ESTALE, effect, times=1),
        Fault("open", f"{writer.root.name}$", errno.ESTALE, skip=2, times=2),
    )
    assert write(writer).rows == rows(writer.root / "part.parquet")
    assert renames(writer) == (1 if effect == "done" else 2)
