# SPDX-License-Identifier: Apache-2.0
"""A test, a benchmark or the demo leaves no service running, even if its process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from tests.faults.victims import has_ended
from tests.support.paths import REPOSITORY
from tests.support.waiting import until

_OWNER = """
import signal
from tests.support.pool import LocalPool

pool = LocalPool(workers=1).start()
print(*(member.pid for member in pool.members()), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_service_ends_with_its_owner(ending: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        members = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
        owner.send_signal(ending)
    assert owner.returncode == -ending
    assert len(members) >= 4, "its supervisor, front, zygote and worker"
    until("all have ended", lambda: all(map(has_ended, members)))
