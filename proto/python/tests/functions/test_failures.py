# SPDX-License-Identifier: Apache-2.0
"""Exceptions of an author's code, as its caller gets them."""

from hypothesis import given
from hypothesis import strategies as st

from updraft.errors import MAX_LINE_BYTES, MAX_MESSAGE_BYTES
from updraft.functions.failures import describe, raised


@given(st.text(max_size=3000))
def test_a_message_is_one_short_line(text: str) -> None:
    line = describe(ValueError(text))
    assert "\n" not in line
    assert len(line.encode()) <= MAX_LINE_BYTES


def test_a_user_error_names_class_and_message() -> None:
    error = raised(ValueError("bad"))
    assert (error.message, error.exception_class) == ("ValueError: bad", "ValueError")


def test_a_user_error_has_all_lines_and_notes() -> None:
    error = ValueError("2 validation errors for Item\nprice\n  must not be negative [got -3]")
    error.add_note("It ran on a pool")
    assert raised(error).message == f"ValueError: {error}\nIt ran on a pool"


def test_what_an_author_makes_of_messages_and_notes_is_bounded_and_breaks_nothing() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    error = BrokenError()
    error.__notes__ = [1, "x" * 2 * MAX_MESSAGE_BYTES]  # type: ignore[list-item]
    message = raised(error).message
    assert message.startswith("BrokenError: <its message could not be read: RuntimeError>\nxxx")
    assert len(message) <= MAX_MESSAGE_BYTES
    error.__notes__ = 7  # type: ignore[assignment]
    assert raised(error).message.startswith("BrokenError")
