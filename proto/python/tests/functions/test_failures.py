# SPDX-License-Identifier: Apache-2.0
"""What an exception of an author's code becomes for its caller."""

from hypothesis import given
from hypothesis import strategies as st

from updraft.errors import MAX_STATUS_MESSAGE_BYTES
from updraft.functions.failures import describe, raised


@given(st.text(max_size=3000))
def test_a_message_is_one_short_line(text: str) -> None:
    line = describe(ValueError(text))
    assert "\n" not in line
    assert len(line.encode()) <= MAX_STATUS_MESSAGE_BYTES


def test_a_user_error_names_class_and_message() -> None:
    error = raised(ValueError("bad"))
    assert (error.message, error.exception_class) == ("ValueError: bad", "ValueError")
