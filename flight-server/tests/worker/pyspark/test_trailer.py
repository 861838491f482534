# SPDX-License-Identifier: Apache-2.0
import struct

import pytest

from updraft.errors import InternalError
from updraft_server.worker.pyspark.trailer import TIMINGS, TIMINGS_BEFORE_4_2, parse_trailer

TIMES = struct.pack("!iqqqqqq", -3, 1000, 1010, 1100, 80, 7, 8)
ACCUMULATORS = struct.pack("!iii2s", -1, 1, 2, b"ab")


def test_a_clean_trailer_gives_durations_from_the_command_on() -> None:
    report = parse_trailer(struct.pack("!i", -6) + TIMES + ACCUMULATORS + struct.pack("!i", -4), TIMINGS).to_report(900)
    assert (report.boot_milliseconds, report.init_milliseconds, report.total_milliseconds) == (100, 10, 200)
    assert report.processing_milliseconds == 80
    assert (report.memory_spilled_bytes, report.disk_spilled_bytes) == (7, 8)
    assert list(report.accumulator_updates) == [b"ab"]


def test_before_4_2_there_is_no_time_of_processing() -> None:
    times = struct.pack("!iqqqqq", -3, 1000, 1010, 1100, 7, 8)
    trailer = parse_trailer(times + ACCUMULATORS, TIMINGS_BEFORE_4_2)
    assert (trailer.finish_milliseconds, trailer.processing_milliseconds) == (1100, 0)
    assert (trailer.memory_spilled_bytes, trailer.disk_spilled_bytes) == (7, 8)


def test_the_mark_of_unread_input_is_no_second_list_of_accumulators() -> None:
    trailer = parse_trailer(TIMES + ACCUMULATORS + struct.pack("!i", -1), TIMINGS)
    assert trailer.complete
    assert trailer.accumulator_updates == [b"ab"]


def test_an_exception_is_its_traceback() -> None:
    assert parse_trailer(struct.pack("!ii4s", -2, 4, "ö!!".encode()), TIMINGS).traceback == "ö!!"


@pytest.mark.parametrize("data", [b"\x00", struct.pack("!i", -99), struct.pack("!ii", -2, 100), TIMES[:-1]])
def test_what_pyspark_does_not_write_is_refused(data: bytes) -> None:
    with pytest.raises(InternalError):
        parse_trailer(data, TIMINGS)
