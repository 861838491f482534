# SPDX-License-Identifier: Apache-2.0
"""Processes of a pod or container, if the cluster's node is this machine: stopped, or short of memory."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

_LIKELIEST_TO_BE_KILLED = "1000"
_KILLED_SECONDS = 60
# Allocates memory until it or another process in its cgroup is killed; prints a line once it has been moved there.
_HOG = "import sys; sys.stdin.readline(); held = []\nwhile True: held.append(bytearray(1 << 26))"


def container_id(pod: Any, name: str) -> str:
    """Return the id of a pod's container, which is also in the name of its control group."""
    (status,) = (status for status in pod.status.container_statuses if status.name == name)
    return str(status.container_id).rpartition("/")[2]


def processes(id_of_pod_or_container: str) -> list[psutil.Process]:
    """Return the processes of a pod or a container, oldest first; a container's first is its PID 1."""
    found = [process for process in psutil.process_iter() if id_of_pod_or_container in _cgroups(process)]
    return sorted((each for each in found if each.name() != "pause"), key=psutil.Process.create_time)


@contextlib.contextmanager
def stopped(pod_uid: str) -> Iterator[None]:
    """Stop all processes of a pod for the block; those that survive it continue."""
    hanging = processes(pod_uid)
    for process in hanging:
        process.suspend()
    try:
        yield
    finally:
        for process in hanging:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def run_out_of_memory(container: str) -> None:
    """Use up the memory of a container, by its id: the kernel kills its PID 1, as it would the largest process."""
    service = processes(container)
    for process in service:
        Path(f"/proc/{process.pid}/oom_score_adj").write_text(_LIKELIEST_TO_BE_KILLED)
    with subprocess.Popen([sys.executable, "-c", _HOG], stdin=subprocess.PIPE, text=True) as hog:
        assert hog.stdin is not None
        _memory_cgroup(service[0].pid).joinpath("cgroup.procs").write_text(str(hog.pid))
        hog.stdin.write("\n")
        hog.stdin.close()
        _, alive = psutil.wait_procs(service[:1], timeout=_KILLED_SECONDS)
        hog.kill()
    assert not alive, "the kernel ended another process"


def _memory_cgroup(pid: int) -> Path:
    """Return the file, for either version of cgroups."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("memory", ""):
            folder = Path("/sys/fs/cgroup") / controllers / path.lstrip("/")
            if folder.exists():
                return folder
    raise FileNotFoundError(f"process {pid} has no memory cgroup")


def _cgroups(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
