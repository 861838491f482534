# SPDX-License-Identifier: Apache-2.0
"""The open-file limit of a pool's own processes stays above that of workers, as far as the hard limit allows."""

import os
import resource

import pytest

from updraft_server.linux.resource_limits import allow_more_than, limit_of_workers


@pytest.mark.parametrize(
    ("soft", "hard", "asked", "pools", "workers"),
    [
        (1_024, 10_000, 4_000, 6_048, 4_000),
        (1_024, 10_000, 65_536, 10_000, 7_952),
        (8_000, 10_000, 512, 8_000, 512),
        (256, 256, 65_536, 256, 128),
    ],
)
def test_workers_have_fewer_than_the_pool(soft: int, hard: int, asked: int, pools: int, workers: int) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            allow_more_than(asked)
            status = resource.getrlimit(resource.RLIMIT_NOFILE) != (pools, hard) or limit_of_workers(asked) != workers
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
