# SPDX-License-Identifier: Apache-2.0
"""docs/guides/vm.md, typed into a real systemd: what it starts runs a job, keeps its secrets, comes back and drains."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platforms.guide import Guide
from tests.platforms.machine import Machine, machine
from tests.platforms.run_job import Outcome, run_job
from tests.support.paths import connector_jar
from tests.support.waiting import until

_GUIDE = Guide("vm")
_TOKEN = "/etc/updraft/pool.token"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Follow the guide on a machine, with packages from the lock instead of pip's, and yield it."""
    directory = tmp_path_factory.mktemp("vm")
    # Services of other users append to logs in this directory.
    directory.chmod(0o755)
    with machine(directory) as booted:
        for commands in _GUIDE.commands:
            if "pip install" not in commands:
                booted.type(commands)
        until("the pool is ready", lambda: "pool is ready" in booted.log("updraft-front"))
        until("the writer is ready", lambda: "writer is ready" in booted.log("updraft-writer"))
        yield booted


def _job(vm: Machine, directory: Path) -> Outcome:
    """Run the job with the guide's confs, with local files in place of the guide's."""
    confs = _GUIDE.confs
    assert Path(confs["spark.jars"]).name == connector_jar().name
    confs["spark.jars"] = str(connector_jar())
    for service in ("udf", "write"):
        token = directory / confs[f"spark.updraft.{service}.tokenFile"]
        token.write_text(vm.type(f"cat /etc/updraft/{token.name}"))
        confs[f"spark.updraft.{service}.tokenFile"] = str(token)
    return run_job(directory / "job", confs, str(directory / "table"), _TOKEN, within=vm.on_its_network)


def test_a_job_runs_as_the_user_of_the_workers_who_cannot_read_the_token(vm: Machine, tmp_path: Path) -> None:
    outcome = _job(vm, tmp_path)
    assert outcome.right
    assert outcome.users == [int(vm.type("id -u updraft-workers"))]
    assert outcome.secrets == ["PermissionError"]


def test_the_units_leave_workers_what_their_sandbox_is_made_of(vm: Machine) -> None:
    allowed = ["setpriv", "--reuid=65534", "--clear-groups", "unshare", "--user", "--mount", "true"]
    if subprocess.run(allowed, capture_output=True, check=False).returncode != 0:
        pytest.skip("ordinary users may not make user namespaces here")
    ready = next(line for line in vm.log("updraft-front").splitlines() if '"pool is ready"' in line)
    layers = set(re.split("[,;] ", json.loads(ready)["sandbox"].partition("; off")[0]))
    assert {"read-only-files", "shared-memory", "terminals", "seccomp", "capabilities", "hidden-memory"} <= layers


def test_a_pool_whose_front_was_killed_serves_again(vm: Machine, tmp_path: Path) -> None:
    before = vm.log("updraft-front").count("pool is ready")
    vm.type("systemctl kill --signal=KILL updraft-front")
    until("the front is ready again", lambda: vm.log("updraft-front").count("pool is ready") > before)
    assert _job(vm, tmp_path).right


def test_a_stop_drains_and_ends_the_workers_too(vm: Machine) -> None:
    vm.type("systemctl stop updraft-front")
    states = vm.type("systemctl show --property=ActiveState,Result --value updraft-front updraft-workers").split()
    assert states == ["success", "inactive"] * 2
    assert "drained" in vm.log("updraft-front")
