# SPDX-License-Identifier: Apache-2.0
"""Zygotes for the tests that run real workers: starting one takes a second, so a module shares it."""

from collections.abc import Iterator

import pytest
from pool_driver import Zygotes

from updraft_server.ipc.worker_settings import WorkerSettings


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    """A zygote that allows session functions."""
    started = Zygotes(tmp_path_factory.mktemp("zygote"), WorkerSettings(allow_session_functions=True))
    yield started
    started.stop()
