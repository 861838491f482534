# SPDX-License-Identifier: Apache-2.0
"""Run of the job with a guide's confs, and its outcome."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.platforms import job
from tests.support.paths import PYTHON

# Reached only if something hangs.
_SECONDS = 300


@dataclass(frozen=True)
class Outcome:
    """Outcome that the job has printed."""

    on_pool: bool
    sum: int
    rows: int
    users: list[int]
    secrets: list[str]
    executors: int

    @property
    def right(self) -> bool:
        """Return whether a pool ran the function, and every row is in the table once."""
        return self.on_pool and self.rows == job.ROWS and self.sum == job.ROWS * (job.ROWS - 1)


def run_job(
    directory: Path,
    confs: Mapping[str, str],
    table: str,
    secret: str = "",
    *,
    within: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run the job in `directory`, with `confs` as its defaults; `within` is a command that runs another one."""
    directory.mkdir(exist_ok=True)
    defaults = "".join(f"{name} {value}\n" for name, value in confs.items())
    (directory / "spark-defaults.conf").write_text(defaults)
    (directory / "factors.py").write_text("TWO = 2\n")
    ran = subprocess.run(
        [*within, str(PYTHON), job.__file__, table, secret],
        cwd=directory,
        env={
            **os.environ,
            "SPARK_CONF_DIR": str(directory),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(PYTHON),
            **(environment or {}),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    said = [line.removeprefix("job: ") for line in ran.stdout.splitlines() if line.startswith("job: ")]
    assert said, f"{ran.stdout}\n{ran.stderr}"
    return Outcome(**json.loads(said[0]))
