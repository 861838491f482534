# SPDX-License-Identifier: Apache-2.0
"""Pods as OpenShift runs them: a user id without an account, in group 0, without a home directory."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platforms.console import Console, OtherPorts
from tests.platforms.installation import installation
from tests.platforms.run_job import run_job
from tests.support.paths import connector_jar
from tests.support.spark import EXTENSION

_USER = 1_000_650_000
_AS_USER = ["setpriv", f"--reuid={_USER}", "--regid=0", "--clear-groups", "env", "HOME=/"]
_ENVIRONMENT = {"UPDRAFT_ADMIN_LISTEN": "127.0.0.1:0", "UPDRAFT_METRICS_LISTEN": "127.0.0.1:0"}

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become any user"),
]


@pytest.fixture(scope="module")
def ports() -> OtherPorts:
    return OtherPorts(8815, 8816)


@pytest.fixture(scope="module")
def services(ports: OtherPorts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    programs = installation() / "bin"
    serve = [
        [str(programs / "updraft-server"), "serve", "--listen", "127.0.0.1:8815", "--session-functions", "unsigned"],
        [str(programs / "updraft-writer"), "serve", "--listen", "127.0.0.1:8816"],
    ]
    commands = [ports.into(f"{shlex.join([*_AS_USER, *command])} &") for command in serve]
    with Console(tmp_path_factory.mktemp("services"), commands, _ENVIRONMENT) as console:
        console.wait_for("pool is ready")
        console.wait_for("writer is ready")
        yield


@pytest.mark.usefixtures("services")
def test_a_job_runs_on_services_of_a_user_whom_nobody_knows(ports: OtherPorts, tmp_path: Path) -> None:
    confs = {
        "spark.jars": str(connector_jar()),
        "spark.sql.extensions": EXTENSION,
        "spark.updraft.udf.endpoint": ports.into("grpc://127.0.0.1:8815"),
        "spark.updraft.write.endpoint": ports.into("grpc://127.0.0.1:8816"),
        "spark.updraft.write.delivery": "return",
    }
    outcome = run_job(tmp_path / "job", confs, str(tmp_path / "table"))
    assert outcome.right
    assert outcome.users == [_USER]
