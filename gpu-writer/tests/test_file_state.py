# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest

from updraft.errors import InternalError, SinkError, UpdraftError
from updraft_writer.file_state import FileEvent, FileLife, FileState


def test_a_file_is_written_finished_and_published() -> None:
    life = FileLife()
    for event in (FileEvent.FINISH, FileEvent.PUBLISH, FileEvent.PUBLISHED):
        life.handle(event)
    assert life.state is FileState.PUBLISHED


def test_the_first_error_is_the_error_of_everything_after_it() -> None:
    life, first = FileLife(), SinkError("disk full")
    life.fail(first)
    life.fail(SinkError("closed file"))
    for use in (life.check, life.check_open, lambda: life.handle(FileEvent.FINISH)):
        with pytest.raises(SinkError) as raised:
            use()
        assert raised.value is first


def test_a_file_that_has_failed_or_was_given_up_can_never_be_published() -> None:
    endings: list[Callable[[FileLife], None]] = [
        lambda life: life.fail(SinkError("no")),
        lambda life: life.handle(FileEvent.ABORT),
    ]
    for ending in endings:
        life = FileLife()
        life.handle(FileEvent.FINISH)
        ending(life)
        with pytest.raises(UpdraftError):
            life.handle(FileEvent.PUBLISH)
        assert life.state is not FileState.PUBLISHED


def test_giving_up_comes_too_late_once_the_storage_publishes() -> None:
    life = FileLife()
    for event in (FileEvent.FINISH, FileEvent.PUBLISH, FileEvent.ABORT):
        life.handle(event)
    assert life.state is FileState.PUBLISHING


def test_an_error_from_outside_ends_a_file_until_the_storage_publishes_it() -> None:
    early, late = FileLife(), FileLife()
    early.interrupt(SinkError("the writer stops"))
    assert (early.state, str(early.error)) == (FileState.POISONED, "the writer stops")
    for event in (FileEvent.FINISH, FileEvent.PUBLISH):
        late.handle(event)
    late.interrupt(SinkError("the writer stops"))
    assert (late.state, late.error) == (FileState.PUBLISHING, None)


def test_a_batch_after_the_finish_is_an_error() -> None:
    life = FileLife()
    life.handle(FileEvent.FINISH)
    with pytest.raises(InternalError, match="finishing"):
        life.check_open()


def test_a_file_cannot_be_published_without_finish() -> None:
    with pytest.raises(InternalError, match="publish cannot happen to a file that is open"):
        FileLife().handle(FileEvent.PUBLISH)


def test_what_was_published_stays_published_whoever_gives_up_or_fails_later() -> None:
    life = FileLife()
    for event in (FileEvent.FINISH, FileEvent.PUBLISH, FileEvent.PUBLISHED, FileEvent.ABORT):
        life.handle(event)
    life.fail(SinkError("late"))
    assert (life.state, life.error) == (FileState.PUBLISHED, None)
