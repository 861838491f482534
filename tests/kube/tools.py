# SPDX-License-Identifier: Apache-2.0
"""Programs of other projects that the tests run beside the chart: metrics for autoscaling, and simulated nodes.

`make kube-tools` builds them from their Go modules, which Go's checksum database verifies. Tests run them on this
machine, because there is no registry to pull their images from.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import BUILD
from tests.support.ports import free_ports
from tests.support.waiting import until

_BUILT = BUILD / "kube-tools"
_START_SECONDS, _STOP_SECONDS = 60, 10


@dataclass(frozen=True)
class Program:
    """Package of a Go module, and the files that go with it."""

    name: str
    module: str
    version: str
    package: str
    files: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return _BUILT / self.name

    def documents(self) -> list[Path]:
        """Return copies of the files."""
        return sorted(_BUILT.glob(f"{self.name}.d/*"))


_STAGES = tuple(f"kustomize/stage/{stage}/*-*.yaml" for stage in ("node/fast", "node/heartbeat-with-lease", "pod/fast"))
METRICS_SERVER = Program("metrics-server", "sigs.k8s.io/metrics-server", "v0.9.0", "cmd/metrics-server")
PROMETHEUS_ADAPTER = Program("prometheus-adapter", "sigs.k8s.io/prometheus-adapter", "v0.12.0", "cmd/adapter")
KWOK = Program("kwok", "sigs.k8s.io/kwok", "v0.8.0", "cmd/kwok", _STAGES)
_KEDA, _KEDA_VERSION = "github.com/kedacore/keda/v2", "v2.21.0"
KEDA_OPERATOR = Program("keda-operator", _KEDA, _KEDA_VERSION, "cmd/operator", ("config/crd/bases/*.yaml",))
KEDA_ADAPTER = Program("keda-adapter", _KEDA, _KEDA_VERSION, "cmd/adapter")
_ALL = (KWOK, METRICS_SERVER, PROMETHEUS_ADAPTER, KEDA_OPERATOR, KEDA_ADAPTER)


def skip_unless_built(*programs: Program) -> None:
    """Skip the test if any of these programs is missing, and name the command that builds them."""
    missing = [program.name for program in programs if not program.path.exists()]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not built; `make kube-tools` does that")


@contextmanager
def running(
    program: Program, arguments: Sequence[str], *, port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a program for the block, once it listens at `port`; if it ends before that, fail with its log.

    `environment` is added to this process's.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(program.path), *arguments],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            until(f"{program.name} listens", lambda: _listens(process, port, log), timeout_seconds=_START_SECONDS)
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """Return a free port, for a program that cannot report the port it got."""
    return next(free_ports())


def _listens(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text()[-4000:]
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _build(program: Program) -> None:
    source = Path(_downloaded(program)["Dir"])
    copies = program.path.with_suffix(".d")
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()
    for file in (found for pattern in program.files for found in source.glob(pattern)):
        shutil.copyfile(file, copies / file.name)
    # Built last, so that an existing program has all its files.
    command = ["go", "build", "-C", str(source), "-trimpath", "-ldflags=-s -w", "-o", str(program.path)]
    subprocess.run([*command, f"./{program.package}"], check=True)


def _downloaded(program: Program) -> dict[str, Any]:
    command = ["go", "mod", "download", "-json", f"{program.module}@{program.version}"]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def main() -> None:
    """Build the missing programs."""
    _BUILT.mkdir(parents=True, exist_ok=True)
    for program in _ALL:
        if not program.path.exists():
            print(f"{program.name} {program.version}", flush=True)
            _build(program)


if __name__ == "__main__":
    main()
