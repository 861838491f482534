# SPDX-License-Identifier: Apache-2.0
"""Machine for systemd: namespaces with their own /etc, /opt, /srv and /var, so this machine's do not change.

It has no journal: what a unit prints goes to a file. It needs root, and a kernel that lets root mount.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.platforms.installation import installation, public_python
from tests.support.paths import REPOSITORY
from tests.support.waiting import HANG_SECONDS, until

_SYSTEMD = Path("/lib/systemd/systemd")
_PROGRAMS = ("unshare", "nsenter", "ip", "mount", "systemctl", "systemd-sysusers", "openssl")
_NAMESPACES = ("--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--cgroup", "--ipc", "--uts", "--net")
_CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
_PREPARE = """
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
for folder in etc opt srv var; do
  layer=/run/layers/$folder
  mkdir -p $layer/upper $layer/work
  mount -t overlay overlay -o lowerdir=/$folder,upperdir=$layer/upper,workdir=$layer/work /$folder
done
rm -rf /etc/systemd/system
mkdir -p /etc/systemd/system /opt/updraft /run/units/updraft-.service.d
printf '[Service]\\nStandardOutput=append:%s/%%N.log\\nStandardError=append:%s/%%N.log\\n' "$2" "$2" \\
  >/run/units/updraft-.service.d/log.conf
# Targets that services wait for, without the units that a whole machine starts.
for target in default basic final multi-user network network-online shutdown sysinit umount; do
  printf '[Unit]\\nDescription=%s\\nDefaultDependencies=no\\n' $target >/run/units/$target.target
done
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
mount --bind "$1" /opt/updraft
exec env -i PATH="$PATH" container=updraft SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units \\
  /lib/systemd/systemd --system --unit=default.target --show-status=no
"""


@dataclass(frozen=True)
class Machine:
    """Running systemd that takes commands."""

    pid: int
    logs: Path

    @property
    def on_its_network(self) -> list[str]:
        """Return the command that runs another one with the systemd's loopback and this machine's files."""
        return ["nsenter", f"--target={self.pid}", "--net"]

    def type(self, script: str) -> str:
        """Run commands as root, from the root of the checkout, and return their output."""
        ran = subprocess.run(
            [
                "nsenter",
                f"--target={self.pid}",
                "--all",
                f"--wdns={REPOSITORY}",
                "bash",
                "-eu",
                "-o",
                "pipefail",
                "-c",
                script,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS * 2,
            check=False,
        )
        assert ran.returncode == 0, f"{script}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def log(self, unit: str) -> str:
        """Return what a unit has printed so far."""
        path = self.logs / f"{unit}.log"
        return path.read_text() if path.exists() else ""


@contextmanager
def machine(directory: Path) -> Iterator[Machine]:
    """Boot a machine; skip the test, naming what is missing, if that is impossible here."""
    _skip_unless_possible()
    logs = directory / "logs"
    logs.mkdir()
    group = next(path for path in _CGROUPS if (path / "cgroup.procs").exists()) / f"updraft-{os.getpid()}"
    group.mkdir()
    command = ["unshare", *_NAMESPACES, "bash", "-c", _PREPARE, "prepare", str(installation()), str(logs)]
    # A process that writes 0 to cgroup.procs moves itself; the shell does so before it becomes unshare.
    moved = ["sh", "-c", f'echo 0 >{group}/cgroup.procs && exec "$@"', "move", *command]
    with (directory / "boot.log").open("wb") as log:
        process = subprocess.Popen(moved, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield Machine(until("systemd runs", lambda: _booted(process, directory / "boot.log")), logs)
    finally:
        process.kill()
        process.wait()
        until("its processes are gone", lambda: _removed(group))


def _booted(process: subprocess.Popen[bytes], log: Path) -> int | None:
    """Return the pid of systemd once systemctl can reach it."""
    assert process.poll() is None, log.read_text()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ready = children and subprocess.run(
        ["nsenter", f"--target={children[0]}", "--all", "systemctl", "list-units"], capture_output=True, check=False
    )
    return int(children[0]) if ready and ready.returncode == 0 else None


def _removed(group: Path) -> bool:
    """Remove control groups, deepest first; return False while one has processes."""
    try:
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        group.rmdir()
    except OSError:
        return False
    return True


def _skip_unless_possible() -> None:
    missing = [name for name in _PROGRAMS if not shutil.which(name)]
    if os.geteuid() != 0 or not _SYSTEMD.exists() or missing:
        pytest.skip(f"needs root, systemd, and on PATH {', '.join(missing) or 'what is there'}")
    tried = subprocess.run(["unshare", *_NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"namespaces cannot be made here: {tried.stderr.strip()}")
    if not any((path / "cgroup.procs").exists() for path in _CGROUPS):
        pytest.skip("needs a control group file system of version 2")
    public_python()
