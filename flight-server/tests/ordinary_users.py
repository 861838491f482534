# SPDX-License-Identifier: Apache-2.0
"""How tests that run as root run something as an ordinary user."""

import os
import subprocess
import sys

NOBODY = 65534


def ordinary_user() -> list[str]:
    """What to put before a command so that an ordinary user runs it, who can read Python where this user can."""
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
