# SPDX-License-Identifier: Apache-2.0
import struct

import pytest

from updraft_server.worker.sessions.trailer import TrailerError, parse_trailer

TIMINGS = struct.pack("!iqqqqqq", -3, 1000, 1010, 1100, 80, 7, 8)
ACCUMULATORS = struct.pack("!iii2s", -1, 1, 2, b"ab")


def test_a_clean_trailer_gives_durations_from_the_command_on() -> None:
    report = parse_trailer(struct.pack("!i", -6) + TIMINGS + ACCUMULATORS + struct.pack("!i", -4)).to_report(900)
    assert (report.boot_milliseconds, report.init_milliseconds, report.total_milliseconds) == (100, 10, 200)
    assert report.processing_milliseconds == 80
    assert (report.memory_spilled_bytes, report.disk_spilled_bytes) == (7, 8)
    assert list(report.accumulator_updates) == [b"ab"]


def test_the_mark_of_unread_input_is_no_second_list_of_accumulators() -> None:
    trailer = parse_trailer(TIMINGS + ACCUMULATORS + struct.pack("!i", -1))
    assert trailer.complete
    assert trailer.accumulator_updates == [b"ab"]


def test_an_exception_is_its_traceback() -> None:
    assert parse_trailer(struct.pack("!ii4s", -2, 4, "ö!!".encode())).traceback == "ö!!"


@pytest.mark.parametrize("data", [b"\x00", struct.pack("!i", -99), struct.pack("!ii", -2, 100), TIMINGS[:-1]])
def test_what_pyspark_does_not_write_is_refused(data: bytes) -> None:
    with pytest.raises(TrailerError):
        parse_trailer(data)
