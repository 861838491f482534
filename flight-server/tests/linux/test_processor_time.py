# SPDX-License-Identifier: Apache-2.0
"""CPU time counts from batch to batch, whatever ends meanwhile."""

from updraft_server.linux.processor_time import ProcessorTime


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
