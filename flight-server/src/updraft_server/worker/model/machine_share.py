# SPDX-License-Identifier: Apache-2.0
"""Share of the machine that a replica of a model gets: a device of its own, and part of the CPUs."""

import os
from pathlib import Path

from updraft.functions import Batching

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# Workers have one thread each (`updraft_server.supervisor.children`); a model serves all of them.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_FIRST_DEVICE = Path("/dev/nvidia0")
# Devices are probed by name, because the sandbox does not let a process list the directory.
_MAX_DEVICES = 64


def take_share(batching: Batching, number: int) -> None:
    """Set the environment of this process, replica `number`, for the libraries that it loads from now on."""
    if batching.device == "cuda":
        os.environ[VISIBLE_DEVICES] = _device(number)
    threads = batching.threads or max(1, len(os.sched_getaffinity(0)) // batching.replicas)
    os.environ.update(dict.fromkeys(THREADS, str(threads)))


def _device(number: int) -> str:
    """Return one of the GPUs that the pool's environment names, or else one of all installed GPUs."""
    visible = [name.strip() for name in os.environ.get(VISIBLE_DEVICES, "").split(",") if name.strip()]
    if visible:
        return visible[number % len(visible)]
    return str(number % max(1, _installed()))


def _installed() -> int:
    """Return how many GPUs the driver has in this container or machine; CUDA numbers them from 0."""
    return sum(_FIRST_DEVICE.with_name(f"nvidia{minor}").exists() for minor in range(_MAX_DEVICES))
