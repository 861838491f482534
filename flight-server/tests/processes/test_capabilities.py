# SPDX-License-Identifier: Apache-2.0
"""Capabilities that the processes of a pool started by root keep: each what it needs, and a worker none."""

import os
from pathlib import Path

import psutil
import pytest
from other_processes import named
from served_pool import Server, echo

from updraft.service.privileges import KEPT

_KEPT = sum(1 << capability for capability in KEPT)
_SETS = ("CapInh", "CapPrm", "CapEff", "CapAmb")


def held(pid: int) -> set[int]:
    """Return the capability sets of all threads of a process."""
    return {
        int(line.split()[1], 16)
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith(_SETS)
    }


@pytest.mark.skipif(os.getuid() != 0, reason="who is not root has no capabilities to give up")
def test_who_sees_clients_keeps_what_opens_files_and_ports_and_a_worker_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path, "--workers=1")
    try:
        with server.client() as client:
            echo(client)
        ready = server.ready()
        front = held(ready["front"])
        # A container may have fewer capabilities.
        assert _KEPT & _effective() in front
        assert not any(found & ~_KEPT for found in front)
        # The zygote makes namespaces and mounts for each worker.
        assert _effective() in held(ready["zygote"])
        workers = named(psutil.Process(ready["zygote"]).children(), "updraft-worker")
        assert workers
        assert [held(worker.pid) for worker in workers] == [{0}] * len(workers)
    finally:
        server.stop()


def _effective() -> int:
    """Return the effective capabilities of this process, and so of its children."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in status if line.startswith("CapEff"))
