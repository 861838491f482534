# SPDX-License-Identifier: Apache-2.0
"""A process is measured together with its descendants, however many threads it has."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from updraft_server.linux.process_trees import ProcessTree, own_bytes, process_trees

CODE = """
import subprocess, sys, threading
child = subprocess.Popen(["sleep", "600"])
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


def tree(threads: int) -> Iterator[ProcessTree]:
    with subprocess.Popen(
        [sys.executable, "-c", CODE, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process_trees([process.pid])[process.pid]


@pytest.mark.parametrize("threads", [3, 100])
def test_threads_and_children_are_counted(threads: int) -> None:
    for found in tree(threads):
        assert len(found.ticks) == 2
        assert found.threads == threads + 2
        assert 0 < found.own_bytes < found.memory_bytes


def test_nothing_is_told_of_what_has_ended() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert process_trees([child.pid])[child.pid] == ProcessTree((), 0, 0)
    assert process_trees([os.getpid()])[os.getpid()].threads >= 1


def test_memory_that_is_swapped_out_stays_a_processs_own(tmp_path: Path) -> None:
    fields = {"VmRSS": 900, "RssAnon": 100, "RssFile": 600, "RssShmem": 200, "VmPTE": 10, "VmSwap": 4000}
    (tmp_path / "status").write_text("".join(f"{name}:\t{value} kB\n" for name, value in fields.items()))
    assert own_bytes(tmp_path) == 4310 * 1024


WITHOUT_ITS_FIRST_THREAD = """
import ctypes, threading
def stay():
    kept = b"x" * (64 << 20)
    while "zombie" not in open("/proc/self/status").read():
        pass
    print(flush=True)
    threading.Event().wait()
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_memory_counts_without_the_first_thread() -> None:
    with subprocess.Popen([sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert process_trees([process.pid])[process.pid].own_bytes > 64 << 20
        finally:
            process.kill()
