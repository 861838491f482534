# SPDX-License-Identifier: Apache-2.0
"""Runner of one of these applications against a pool or a writer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from tests.support.paths import PYTHON, REPOSITORY

_TIMEOUT_SECONDS = 280


def differences(application: str, *arguments: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> Mapping[str, str]:
    """Return the application's findings: case -> difference from the expected answer, empty if there is none."""
    job = subprocess.run(
        [PYTHON, "-m", f"tests.e2e.applications.{application}", *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=timeout_seconds,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    found: Mapping[str, str] = json.loads(job.stdout.splitlines()[-1])
    return found
