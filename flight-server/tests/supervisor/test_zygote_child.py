# SPDX-License-Identifier: Apache-2.0
"""Start of the supervisor's children."""

import subprocess
import sys
from pathlib import Path

_STARTS_A_ZYGOTE = """
import os, pathlib, sys
from updraft_server.ipc.control import packet_pair
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.zygote_packets import ZygoteSettings
from updraft_server.supervisor.zygote_child import start_zygote

directory = pathlib.Path(sys.argv[1])
_, door = packet_pair()
os.register_at_fork(before=lambda: print("forked"))
zygote = start_zygote(ZygoteSettings((), str(directory), str(directory), str(directory), WorkerSettings()), door)
zygote.end()
print("started")
"""


def test_handlers_of_fork_do_not_run_when_a_child_starts(tmp_path: Path) -> None:
    # gRPC's fork handlers may end the child before it executes its program.
    ended = subprocess.run(
        [sys.executable, "-c", _STARTS_A_ZYGOTE, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "started\n", ended.stderr
