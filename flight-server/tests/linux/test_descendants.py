# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess

from updraft_server.linux.descendants import children, kill_child
from updraft_server.linux.process_trees import parents


def test_a_child_is_one_until_it_is_reaped_and_everybody_knows_its_parent() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        assert child.pid in children()
        assert parents()[child.pid] == os.getpid()
        kill_child(child.pid)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.pid in children()
        kill_child(child.pid)
    assert child.returncode == -signal.SIGKILL
    assert child.pid not in children()
    kill_child(child.pid)
