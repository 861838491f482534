# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft.errors import PoolFullError, QuotaError, UpdraftError, UserError, error_from_message, keep_end
from updraft.v1.exchange_pb2 import Error, ErrorKind

SPECIFICATION = Path(__file__).parents[2] / "README.md"

KINDS = [kind for kind in ErrorKind.values() if kind != ErrorKind.ERROR_KIND_UNSPECIFIED]


def make(subclass: type[UpdraftError], message: str = "what happened") -> UpdraftError:
    if subclass in (PoolFullError, QuotaError):
        return subclass(message, retry_after_milliseconds=5)
    return subclass(message)


def test_every_kind_has_exactly_one_error() -> None:
    assert sorted(subclass.kind for subclass in UpdraftError.__subclasses__()) == sorted(KINDS)


def test_the_mapping_is_that_of_the_specification() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([A-Z_]+) \|", SPECIFICATION.read_text(), re.MULTILINE)
    ours = {
        (ErrorKind.Name(error.kind).removeprefix("ERROR_KIND_"), error.code) for error in UpdraftError.__subclasses__()
    }
    assert set(rows) == ours


@pytest.mark.parametrize("subclass", UpdraftError.__subclasses__())
def test_codes_are_grpcs_and_errors_survive_the_wire(subclass: type[UpdraftError]) -> None:
    assert grpc.StatusCode[subclass.code]
    read = error_from_message(make(subclass).to_message())
    assert type(read) is subclass
    assert read.message == "what happened"


def test_a_kind_from_the_future_is_an_internal_error() -> None:
    assert error_from_message(Error.FromString(b"\x08\x63")).code == "INTERNAL"


def test_the_status_message_has_all_lines_of_at_most_two_kibibytes() -> None:
    error = UserError("2 errors\nprice\r\n  must not be negative \n" + "ö" * 2000)
    status = error.status_message()
    assert status.startswith("2 errors\nprice\n  must not be negative\nö")
    assert status.endswith("...")
    assert len(status.encode()) <= 2048
    assert error.first_line() == "2 errors"


def test_the_first_line_has_at_most_a_kibibyte() -> None:
    assert len(UserError("ö" * 2000).first_line().encode()) <= 1024
    assert UserError("").first_line() == ""


def test_a_long_traceback_keeps_its_end_and_says_that_it_was_cut() -> None:
    error = UserError("m", traceback="x" * 2_000_000 + "KeyError: 'ü'").to_message()
    assert error.traceback_truncated
    assert error.traceback.endswith("KeyError: 'ü'")
    assert len(error.traceback.encode()) <= 1024 * 1024


@given(st.text(st.characters(), max_size=200), st.integers(0, 100))
def test_the_end_of_a_text_is_kept_within_its_bytes(text: str, limit: int) -> None:
    kept, truncated = keep_end(text, limit)
    assert len(kept.encode()) <= limit
    assert truncated == (len(text.encode("utf-8", "backslashreplace")) > limit)


def test_a_cut_traceback_is_known_to_be_cut_on_the_other_side() -> None:
    read = error_from_message(UserError("m", traceback="x" * 2_000_000).to_message())
    assert read.to_message().traceback_truncated


def test_texts_of_any_length_are_cut_where_they_are_read() -> None:
    long = "x" * 3_000_000
    error = error_from_message(Error(message=long, exception_class=long, traceback=long + "end"))
    assert (len(error.message), error.message[-3:]) == (64 * 1024, "...")
    assert len(error.exception_class) == 1024
    assert (len(error.traceback), error.traceback[-3:]) == (1024 * 1024, "end")
    assert error.traceback_truncated


def test_text_that_is_no_unicode_does_not_break_an_error() -> None:
    error = UserError("bad \udcff surrogate", traceback="\udcff")
    assert error.status_message()
    assert error.to_message().SerializeToString()


def test_errors_can_be_used_without_grpc() -> None:
    code = "import sys, updraft.errors; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
