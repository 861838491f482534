# SPDX-License-Identifier: Apache-2.0

import os
from pathlib import Path

import pytest

from updraft_server.linux.out_of_memory import OutOfMemoryScore, held_bytes
from updraft_server.linux.process_trees import own_bytes


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


MEMINFO = "MemTotal: 9000 kB\nAnonPages: 500 kB\nShmem: 100 kB\nShmemHugePages: 7 kB\n"
NEW = "anon 3000\nfile 999999\nshmem 200\nanon_thp 1000\n"
OLD = "rss 1\nshmem 1\ntotal_rss 4000\ntotal_shmem 100\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "held"),
    [
        ({}, None),
        ({"proc/meminfo": MEMINFO}, 600 * 1024),
        ({"proc/meminfo": MEMINFO + "PageTables: 50 kB\n"}, 650 * 1024),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.stat": NEW}, 3200),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.stat": NEW + "pagetables 40\n"}, 3240),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.stat": NEW, "proc/meminfo": MEMINFO}, 3200),
        ({"proc/self/cgroup": "4:cpu,memory:/a\n", "sys/fs/cgroup/memory/a/memory.stat": OLD}, 4100),
        ({"proc/meminfo": MEMINFO + "SwapTotal: 90 kB\nSwapFree: 20 kB\n"}, 670 * 1024),
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/memory.stat": NEW,
                "sys/fs/cgroup/a/memory.swap.current": "70\n",
            },
            3270,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.stat": OLD + "swap 1\ntotal_swap 70\n",
            },
            4170,
        ),
        # A process that may move others between groups could move one out of this sum.
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/memory.stat": NEW,
                "sys/fs/cgroup/a/cgroup.procs": "",
                "proc/meminfo": MEMINFO,
            },
            600 * 1024,
        ),
        # Half of a sum would be too low.
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.stat": "anon 3\n", "proc/meminfo": MEMINFO}, 600 * 1024),
    ],
)
def test_the_smallest_group_that_says_both_sums(tmp_path: Path, files: dict[str, str], held: int | None) -> None:
    assert held_bytes(machine(tmp_path, files)) == held


def test_this_process_holds_no_more_than_its_machine() -> None:
    held = held_bytes()
    assert held is not None
    assert held >= own_bytes()
