# SPDX-License-Identifier: Apache-2.0
"""What tests need that mount for one process, or must not be able to."""

import subprocess
import sys

import pytest


def _may_mount() -> bool:
    code = "from updraft_server.linux.namespaces import *; exit(not enter_user_namespace_to_mount())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# In most containers nobody may; what holds there is tried with `zygotes_that_may_not_mount`.
needs_mounts = pytest.mark.skipif(not _may_mount(), reason="this user may not mount")
