# SPDX-License-Identifier: Apache-2.0
"""A few seconds of `make fuzz`, in a process of its own: what it looks for may end the process."""

import subprocess
import sys
from pathlib import Path

SECONDS = 5.0


def test_hostile_bytes_are_the_clients_error_and_nothing_else() -> None:
    fuzz = Path(__file__).with_name("fuzz.py")
    ended = subprocess.run(
        [sys.executable, fuzz, "--seconds", str(SECONDS)], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(" inputs") == 3
