# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from updraft_server.worker.failures import MAX_MESSAGE_CHARACTERS, keep_end, one_line, user_failure


@given(st.text(st.characters(), max_size=200), st.integers(0, 100))
def test_the_end_of_a_text_is_kept_within_its_bytes(text: str, limit: int) -> None:
    kept, truncated = keep_end(text, limit)
    assert len(kept.encode()) <= limit
    assert truncated == (len(text.encode("utf-8", "backslashreplace")) > limit)


@given(st.text(max_size=3000))
def test_a_message_is_one_short_line(text: str) -> None:
    line = one_line(text)
    assert "\n" not in line
    assert len(line) <= MAX_MESSAGE_CHARACTERS


def test_a_user_failure_names_class_and_message() -> None:
    failure = user_failure(ValueError("bad"))
    assert (failure.message, failure.exception_class) == ("ValueError: bad", "ValueError")
