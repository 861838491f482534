# SPDX-License-Identifier: Apache-2.0
"""What a model process may take, and what is said of one that took more."""

import dataclasses

import pytest

from updraft_server.ipc.model_packets import LimitModels
from updraft_server.zygote.model_process_usage import ModelProcessUsage

LIMITS = LimitModels(processes=4, threads=9, scratch_bytes=500, scratch_files=3, batch_processor_seconds=2.5)


@pytest.mark.parametrize("take", [{}, {"processes": 4, "threads": 9, "scratch_bytes": 500, "scratch_files": 3}])
def test_a_process_at_its_limits_goes_on(take: dict[str, int]) -> None:
    assert ModelProcessUsage(10**12, **take).excess(LIMITS, 2.5) == ""


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
        raise ValueError(ModelProcessUsage(0, **take).excess(LIMITS, 0.0))


def test_a_process_that_computes_for_too_long_on_one_batch_is_told_so() -> None:
    take = ModelProcessUsage(0, processor_seconds=100.0)
    assert "used 2.6 seconds of CPU time for one batch, the limit is 2.5" in take.excess(LIMITS, 2.6)
    assert take.excess(dataclasses.replace(LIMITS, batch_processor_seconds=0.0), 10.0**9) == ""
