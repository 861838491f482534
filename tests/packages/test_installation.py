# SPDX-License-Identifier: Apache-2.0
"""Wheels in an environment of their own, without an index: the installed files, and that they run."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.packages.distribution import FOLDERS, Wheel, uv
from tests.support.service import LocalService
from tests.support.writer import LocalWriter

_TIMEOUT_SECONDS = 60

pytestmark = pytest.mark.timeout(600)

_IMPORTS = """
import importlib, importlib.metadata, json, sys
print(json.dumps({
    "files": [importlib.import_module(name).__file__ for name in sys.argv[1:]],
    "distributions": [found.name for found in importlib.metadata.distributions()],
}))
"""
_DEFINES = """
from updraft import function, testing

@function
def discount(price: float, percent: float = 10.0) -> float:
    return price * (100 - percent) / 100

print(testing.call(discount, [100.0, 20.0]).to_pylist())
"""
_WRITES = """
import sys
import pyarrow as pa
from updraft.client.writer import WriterClient
table = pa.table({"x": [1, 2, 3]})
with WriterClient(sys.argv[1]) as client:
    with client.create(sys.argv[2], table.schema) as file:
        file.write(table)
"""


def _run(*command: str | Path, cwd: Path) -> str:
    """Run a program of the environment as its user would, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_wheels_install_and_run_without_the_workspace(
    wheels: list[Wheel], strangers: Path, third_party: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = ("--find-links", wheels[0].path.parent, "--find-links", strangers)
    here = ("--python", third_party)
    names = [name for name in FOLDERS if name != "updraft-core"]
    installed = uv("pip", "install", *here, "--no-index", *folders, *names, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    checked = uv("pip", "check", *here, cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr

    programs = third_party / "bin"
    packages = [package for _, package in FOLDERS.values()]
    found = json.loads(_run(programs / "python", "-I", "-c", _IMPORTS, *packages, cwd=tmp_path))
    assert all(Path(file).is_relative_to(third_party) for file in found["files"])
    assert {name for name in found["distributions"] if name.startswith("updraft")} == set(FOLDERS)
    for program in ("updraft", "updraft-server", "updraft-writer"):
        assert _run(programs / program, "--version", cwd=tmp_path).startswith(f"{program} ")
    assert "usage: updraft-server serve" in _run(programs / "updraft-server", "serve", "--help", cwd=tmp_path)

    # Run outside of the checkout, so that a service's child processes do not find it either.
    monkeypatch.chdir(tmp_path)
    with LocalService("pool", programs / "updraft-server", ["--workers", "1"]) as pool:
        listed = _run(programs / "updraft", "functions", "--endpoint", pool.tcp_endpoint, cwd=tmp_path)
        assert "echo" in listed
    with LocalService("writer", programs / "updraft-writer", ["--root", str(tmp_path)]) as writer:
        file = tmp_path / "written.parquet"
        _run(programs / "python", "-I", "-c", _WRITES, writer.tcp_address, str(file), cwd=tmp_path)
        assert file.exists()


def _with_the_core_alone(wheels: list[Wheel], environment: Path, cwd: Path) -> Path:
    """Install `updraft-core` without extras and return the environment's Python."""
    folder = ("--no-index", "--find-links", wheels[0].path.parent)
    installed = uv("pip", "install", "--python", environment, *folder, "updraft-core", cwd=cwd)
    assert installed.returncode == 0, installed.stderr
    return environment / "bin/python"


def test_an_author_of_functions_installs_the_core_alone(
    wheels: list[Wheel], light_environment: Path, tmp_path: Path
) -> None:
    python = _with_the_core_alone(wheels, light_environment, tmp_path)
    assert _run(python, "-I", "-c", _DEFINES, cwd=tmp_path) == "[90.0, 18.0]\n"


def test_a_producer_of_files_installs_nothing_of_the_services(
    wheels: list[Wheel], light_environment: Path, tmp_path: Path
) -> None:
    python = _with_the_core_alone(wheels, light_environment, tmp_path)
    found = json.loads(_run(python, "-I", "-c", _IMPORTS, "updraft.client.writer", cwd=tmp_path))
    assert set(found["distributions"]) == {"grpcio", "protobuf", "pyarrow", "typing_extensions", "updraft-core"}
    file = tmp_path / "written.parquet"
    with LocalWriter(tmp_path) as writer:
        _run(python, "-I", "-c", _WRITES, writer.tcp_address, str(file), cwd=tmp_path)
    assert file.exists()


def test_nobody_elses_package_takes_the_place_of_the_core(
    wheels: list[Wheel], strangers: Path, third_party: Path, tmp_path: Path
) -> None:
    (cli,) = (wheel.path for wheel in wheels if wheel.name == "updraft-cli")
    install = ("pip", "install", "--python", third_party, "--dry-run", "--no-index", "--find-links", strangers, cli)
    refused = uv(*install, cwd=tmp_path)
    assert refused.returncode != 0
    assert "there is no version of updraft-core[service]==" in " ".join(refused.stderr.split())
    resolved = uv(*install, "--find-links", cli.parent, cwd=tmp_path)
    assert resolved.returncode == 0, resolved.stderr
    assert re.findall(r"^ \+ ([a-z-]+)", resolved.stderr, re.MULTILINE) == ["updraft-cli", "updraft-core"]
