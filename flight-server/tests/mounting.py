# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests that mount for one process, or that must not be able to mount."""

import subprocess
import sys

import pytest


def _may_mount() -> bool:
    code = "from updraft_server.linux.namespaces import *; exit(not enter_user_namespace_to_mount())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Most containers do not allow mounts; `zygotes_that_may_not_mount` covers that case.
needs_mounts = pytest.mark.skipif(not _may_mount(), reason="this user may not mount")
