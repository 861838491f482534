# SPDX-License-Identifier: Apache-2.0
"""Commands that tests running as root execute as an ordinary user."""

import os
import subprocess
import sys

NOBODY = 65534


def ordinary_user() -> list[str]:
    """Return a command prefix for running as an ordinary user who can read the same Python installation."""
    if os.geteuid() != 0:
        return []
    identity = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", *identity, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


def can_become_an_ordinary_user() -> bool:
    try:
        tried = subprocess.run([*ordinary_user(), sys.executable, "-c", "import updraft_server"], capture_output=True)
    except OSError:
        return False
    return tried.returncode == 0
