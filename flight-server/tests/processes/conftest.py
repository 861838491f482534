# SPDX-License-Identifier: Apache-2.0
"""Zygotes for the tests that run real workers: starting one takes a second, so a module shares it."""

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pool_driver import Zygotes

from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.linux import seccomp
from updraft_server.linux.capabilities import SYS_ADMIN, holds_capability
from updraft_server.linux.namespaces import mount_memory, new_memory
from updraft_server.linux.process_control import forbid_new_privileges
from updraft_server.sandbox_layers import SHARED_MEMORY_PATH


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    """Start a zygote that allows session functions."""
    started = Zygotes(tmp_path_factory.mktemp("zygote"), WorkerSettings(allow_session_functions=True))
    yield started
    started.stop()


@pytest.fixture
def zygotes_that_may_not_mount(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Zygotes]:
    """Start zygotes that may not mount, as in a container; they own /dev/shm unless a parameter says otherwise."""
    whose = getattr(request, "param", "pool")
    # Otherwise the test would have no /dev/shm of its own, and would sweep the machine's.
    if not holds_capability(SYS_ADMIN):
        pytest.skip("only root gives one of several threads a /dev/shm of its own")

    def start() -> Zygotes:
        memory = new_memory(64 << 20)
        mount_memory(memory, SHARED_MEMORY_PATH)
        os.close(memory)
        forbid_new_privileges()
        seccomp.install(seccomp.Filter([seccomp.Rule("fsopen", errno.EPERM)]).filled())
        return Zygotes(tmp_path, WorkerSettings(allow_session_functions=True), shared_memory=whose)

    # Mounts and filters apply to one thread and its children.
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(start).result()
        yield started
        started.stop()
