# SPDX-License-Identifier: Apache-2.0
"""CPU time counts from batch to batch, even if processes end meanwhile; errors name the exceeded limit."""

import dataclasses

import pytest

from updraft_server.ipc.model_packets import LimitModels
from updraft_server.ipc.worker_usage import ProcessorTime, WorkerUsage


def test_cpu_time_counts_from_batch_to_batch() -> None:
    time = ProcessorTime()
    assert [time.measured(0, used) for used in (100.0, 101.0, 103.0)] == [0.0, 1.0, 3.0]
    assert [time.measured(1, used) for used in (104.0, 106.0)] == [0.0, 2.0]
    assert time.measured(0, 107.0) == 3.0


def test_cpu_time_of_a_process_for_which_nobody_waited_stays_counted() -> None:
    time = ProcessorTime()
    assert [time.measured(0, used) for used in (0.0, 10.0, 2.0, 5.0, 6.0)] == [0.0, 10.0, 10.0, 13.0, 14.0]


def test_cpu_time_of_a_process_that_ends_during_a_measurement_counts_once() -> None:
    time = ProcessorTime()
    assert [time.measured(0, used) for used in (0.0, 10.0, 2.0, 10.5, 11.0)] == [0.0, 10.0, 10.0, 10.5, 11.0]


LIMITS = LimitModels(processes=4, threads=9, scratch_bytes=500, scratch_files=3, batch_processor_seconds=2.5)


@pytest.mark.parametrize("take", [{}, {"processes": 4, "threads": 9, "scratch_bytes": 500, "scratch_files": 3}])
def test_a_process_at_its_limits_goes_on(take: dict[str, int]) -> None:
    assert LIMITS.excess(WorkerUsage(0, "", own_bytes=10**12, **take), 2.5) == ""


@pytest.mark.parametrize(
    ("take", "said"),
    [
        ({"processes": 5}, "ran 5 processes, the limit is 4, .*--worker-processes"),
        ({"threads": 10}, "ran 10 threads .*, the limit is 9, .*--worker-processes"),
        ({"scratch_bytes": 501}, "had 501 bytes in .*, the limit is 500, .*--worker-scratch-bytes"),
        ({"scratch_files": 4}, "had 4 files in .*, the limit is 3, .*--worker-scratch-bytes"),
    ],
)
def test_a_process_beyond_a_limit_is_told_which_and_by_how_much(take: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        raise ValueError(LIMITS.excess(WorkerUsage(0, "", **take), 0.0))


def test_a_process_that_computes_for_too_long_on_one_batch_is_told_so() -> None:
    take = WorkerUsage(0, "", processor_seconds=100.0)
    assert "used 2.6 seconds of CPU time for one batch, the limit is 2.5" in LIMITS.excess(take, 2.6)
    assert dataclasses.replace(LIMITS, batch_processor_seconds=0.0).excess(take, 10.0**9) == ""
