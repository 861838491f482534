# SPDX-License-Identifier: Apache-2.0
"""Supervisor on a machine that has no room for one more process."""

import errno
import os
from pathlib import Path
from typing import Any, cast

import pytest

from updraft_server.settings import ServeSettings
from updraft_server.supervisor import zygotes
from updraft_server.supervisor.programs import PoolSupervisor


def test_a_reload_that_cannot_start_a_zygote_leaves_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(zygotes, "start_zygote", refuses)
    settings = ServeSettings()
    serving = PoolSupervisor(settings, tmp_path)
    children = {"zygote": cast(Any, None)}
    serving._children.update(children)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    serving._reload()
    assert serving._children == children
    assert len(list(descriptors.iterdir())) == before
    assert capfd.readouterr().err == (
        "updraft-server: the next zygote cannot be started: Resource temporarily unavailable: the previous functions"
        " stay in use\n"
    )
