# SPDX-License-Identifier: Apache-2.0
"""Resources of a pool (counters, processes, descriptors, memory, scratch files), compared with those before a fault."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.flight import pool_status
from tests.support.pool import LocalPool

MEMORY_TOLERANCE_BYTES = 48 << 20
"""Memory that an allocator may keep of the table's largest message, 32 MiB, and of three good exchanges."""

_ROUNDED_BYTES = 64 << 10
"""Rounding error: bytes that the store counts for directories, and for an artifact in addition to its content."""


@dataclass(frozen=True)
class Artifacts:
    """Artifact store. It may hold more than before the fault, but the bytes that it reports must be on disk."""

    told_bytes: int
    disk_bytes: int
    on_their_way: int
    """Number of files that are arriving or waiting for removal."""

    def excess(self, before: Artifacts) -> list[str]:
        """Return a description of bytes and files that belong to no stored artifact."""
        more_bytes = (self.told_bytes - before.told_bytes) - (self.disk_bytes - before.disk_bytes)
        found = [f"room of {more_bytes} bytes for no artifact"] if more_bytes > _ROUNDED_BYTES else []
        return found + ([f"{self.on_their_way} artifacts on their way"] if self.on_their_way else [])


@dataclass(frozen=True)
class Held:
    """Resources that a pool at rest holds."""

    counters: dict[str, int]
    processes: int
    descriptors: dict[str, int]
    """Number of descriptors of each process that this user may inspect; root may inspect all processes."""
    resident_bytes: dict[str, int]
    scratch_directories: int
    artifacts: Artifacts

    def excess(self, before: Held) -> list[str]:
        """Return a description of what has grown or changed."""
        found = []
        if self.counters != before.counters:
            found.append(f"counters {self.counters}, not {before.counters}")
        if self.processes != before.processes:
            found.append(f"{self.processes} processes, not {before.processes}")
        if self.scratch_directories > before.scratch_directories:
            found.append(f"{self.scratch_directories} scratch directories, not {before.scratch_directories}")
        found += self.artifacts.excess(before.artifacts)
        for role, count in self.descriptors.items():
            if count > before.descriptors[role]:
                found.append(f"{count} descriptors in the {role}, not {before.descriptors[role]}")
        for role, held in self.resident_bytes.items():
            if held > before.resident_bytes[role] + MEMORY_TOLERANCE_BYTES:
                found.append(f"{held >> 20} MiB in the {role}, not {before.resident_bytes[role] >> 20}")
        return found


def held_by(pool: LocalPool, runtime: Path) -> Held:
    """Return what the pool holds now; raise psutil.Error or a connection error if a process of the pool is missing."""
    roles = {"supervisor": psutil.Process(pool.pid), "zygote": pool.zygote(), "front": pool.front()}
    living = {role: process for role, process in roles.items() if process is not None}
    status = pool_status(pool.tcp_address)
    told = json.loads(pool.page("/status.json")[0])
    metrics = _metrics(pool)
    members = pool.members()
    # The meter process runs as long as a worker's scratch directory contains files, which an owner may leave there.
    meters = sum(process.name() == "updraft-meter" for process in members)
    descriptors = _descriptors(living)
    if "zygote" in descriptors:
        descriptors["zygote"] -= meters
    return Held(
        counters={
            "idle": status.workers_idle,
            "busy": status.workers_busy,
            "starting": status.workers_starting,
            "waiting": status.exchanges_waiting,
            "open": told["exchanges_open"],
            "running": int(metrics["updraft_exchanges_running"]),
            "queue bytes": int(metrics["updraft_queue_bytes"]),
            "early reads": int(metrics["updraft_early_reads"]),
        },
        processes=len(members) - meters,
        descriptors=descriptors,
        resident_bytes={role: process.memory_info().rss for role, process in living.items()},
        scratch_directories=_scratch_directories(runtime),
        artifacts=_artifacts(int(metrics["updraft_artifact_store_bytes"]), runtime),
    )


def _metrics(pool: LocalPool) -> dict[str, float]:
    """Return the metrics without labels."""
    found = re.findall(r"^(\w+) (\S+)$", pool.page("/metrics")[0], re.MULTILINE)
    return {name: float(value) for name, value in found}


def _artifacts(told_bytes: int, runtime: Path) -> Artifacts:
    # Unlike rglob, os.walk skips directories that disappear because the pool is removing them.
    stores = [Path(path) for path, _, _ in os.walk(runtime) if Path(path).name == "artifacts"]
    listed = {Path(path): folders + files for store in stores for path, folders, files in os.walk(store)}
    passing = sum(len(listed.get(store / name, [])) for store in stores for name in ("arriving", "trash"))
    paths = [folder / name for folder, names in listed.items() for name in names]
    stored = [path for path in paths if path.is_file() and not path.is_symlink()]
    return Artifacts(told_bytes, sum(path.lstat().st_size for path in stored), passing)


def _descriptors(processes: Mapping[str, psutil.Process]) -> dict[str, int]:
    found = {}
    for role, process in processes.items():
        with contextlib.suppress(psutil.AccessDenied):
            found[role] = process.num_fds()
    return found


def _scratch_directories(runtime: Path) -> int:
    """Count scratch directories. A worker's directory exists as long as the worker, even if it contains files."""
    scratches = [path for scratch in runtime.rglob("scratch") for path in scratch.iterdir()]
    # Count the directories in the trash one by one.
    return sum(len(list(path.iterdir())) if path.name == ".trash" else 1 for path in scratches)
