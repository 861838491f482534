# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

from updraft_server.linux.out_of_memory import OutOfMemoryScore


def own_score() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


def test_a_fork_is_killed_before_its_parent_whose_score_stays() -> None:
    before = own_score()
    score = OutOfMemoryScore()
    with score.raised():
        child = os.fork()
        if child == 0:
            os._exit(own_score() // 10)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == min(before + 500, 1000) // 10
    assert own_score() == before
