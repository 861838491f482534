# SPDX-License-Identifier: Apache-2.0
"""Runs one of these applications beside a pool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from tests.support.paths import PYTHON, REPOSITORY

_TIMEOUT_SECONDS = 280


def differences(application: str, endpoint: str) -> Mapping[str, str]:
    """What the application found: case -> what differs between stock and the pool, empty when nothing does."""
    job = subprocess.run(
        [PYTHON, "-m", f"tests.e2e.applications.{application}", endpoint],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    found: Mapping[str, str] = json.loads(job.stdout.splitlines()[-1])
    return found
