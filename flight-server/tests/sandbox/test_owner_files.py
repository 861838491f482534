# SPDX-License-Identifier: Apache-2.0
"""Paths that cover everything except the hidden ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from updraft_server.linux.landlock import LEAST_VERSION, landlock_version
from updraft_server.sandbox.owner_files import surroundings


def below(directory: Path, hidden: list[Path]) -> set[str]:
    """Return the part of the cover that is below a directory."""
    covered = map(Path, surroundings(map(str, hidden)))
    return {str(path.relative_to(directory)) for path in covered if path.is_relative_to(directory)}


def test_what_surrounds_a_hidden_path_is_covered(tmp_path: Path) -> None:
    for name in ("a/hidden", "a/b", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/file").touch()
    assert below(tmp_path, [tmp_path / "a/hidden"]) == {"a/b", "a/file", "c"}


def test_nothing_above_a_hidden_path_is_covered_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "hidden").touch()
    above = {str(parent) for parent in tmp_path.parents} | {str(tmp_path)}
    assert not above & set(surroundings([str(tmp_path / "hidden")]))


def test_a_hidden_path_that_is_not_there_yet_stays_hidden(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    assert below(tmp_path, [tmp_path / "later/secret"]) == {"there"}


def test_no_link_leads_to_a_hidden_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/secret").touch()
    (tmp_path / "real/other").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert below(tmp_path, [tmp_path / "link/secret"]) == {"real/other"}


def test_a_secret_of_kubernetes_is_hidden_with_all_its_versions(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    for version in ("..1", "..2"):
        (volume / version).mkdir(parents=True)
        (volume / version / "tokens").touch()
    (volume / "..data").symlink_to("..1")
    (volume / "tokens").symlink_to("..data/tokens")
    assert below(tmp_path, [volume / "tokens"]) == set()


def test_paths_that_hold_each_other_are_hidden_once(tmp_path: Path) -> None:
    (tmp_path / "outer/inner").mkdir(parents=True)
    (tmp_path / "outer/other").mkdir()
    assert below(tmp_path, [tmp_path / "outer/inner", tmp_path / "outer"]) == set()


@pytest.mark.skipif(landlock_version() < LEAST_VERSION, reason="this kernel has no Landlock")
def test_a_process_with_threads_is_not_taken_for_confined(tmp_path: Path) -> None:
    script = """
import sys, threading
from pathlib import Path
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.sandbox.owner_files import OwnerFiles
threading.Thread(target=threading.Event().wait, daemon=True).start()
try:
    OwnerFiles(WorkerSettings()).confine(Path(sys.argv[1]))
except OSError as error:
    print(error.strerror)
"""
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "several threads" in ran.stdout


def test_relative_imports_go_on_in_another_directory(tmp_path: Path) -> None:
    script = """
import os, subprocess, sys
from pathlib import Path
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.sandbox.owner_files import OwnerFiles
sys.path.append("lib")
OwnerFiles(WorkerSettings()).confine(Path("scratch"))
import of_the_operator
subprocess.run([sys.executable, "-c", "import of_the_operator"], check=True)
"""
    for name in ("lib", "scratch"):
        (tmp_path / name).mkdir()
    (tmp_path / "lib" / "of_the_operator.py").touch()
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": "lib"}, check=True)


@pytest.mark.skipif(landlock_version() < LEAST_VERSION, reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    ("use", "tenant", "has_it"),
    [
        ("ALL", "team", True),
        ("OF_NO_TENANT", "team", False),
        ("OF_NO_TENANT", "", True),
        ("NONE", "", False),
    ],
)
def test_shared_memory_can_be_taken_away(tmp_path: Path, use: str, tenant: str, has_it: bool) -> None:
    script = """
import sys
from pathlib import Path
from multiprocessing.shared_memory import SharedMemory
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.sandbox.owner_files import OwnerFiles, SharedMemoryUse
files = OwnerFiles(WorkerSettings(), shared_memory=SharedMemoryUse[sys.argv[2]])
files.confine(Path(sys.argv[1]), tenant=sys.argv[3])
try:
    memory = SharedMemory(create=True, size=8)
    memory.close()
    memory.unlink()
    print(True)
except PermissionError:
    print(False)
"""
    command = [sys.executable, "-c", script, str(tmp_path), use, tenant]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(has_it)


@pytest.mark.skipif(landlock_version() < LEAST_VERSION, reason="this kernel has no Landlock")
def test_zeros_are_read_and_not_written(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.sandbox.owner_files import OwnerFiles
OwnerFiles(WorkerSettings()).confine(Path(sys.argv[1]))
print(len(os.read(os.open("/dev/zero", os.O_RDONLY), 4)))
os.close(os.open("/dev/null", os.O_RDWR))
try:
    os.open("/dev/zero", os.O_RDWR)
except PermissionError:
    print("refused")
"""
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["4", "refused"]
