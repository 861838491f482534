# SPDX-License-Identifier: Apache-2.0
"""A pool works even if someone has used up a kernel limit of the user as a whole."""

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pool_driver import Zygotes, answers, running_pool

from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.linux import seccomp
from updraft_server.linux.process_control import forbid_new_privileges


@pytest.fixture
def zygotes_without_epoll(tmp_path: Path) -> Iterator[Zygotes]:
    """Start zygotes for which epoll fails, as the kernel does when the user's watches are used up."""

    def start() -> Zygotes:
        forbid_new_privileges()
        seccomp.install(seccomp.Filter([seccomp.Rule("epoll_ctl", errno.ENOSPC)]).filled())
        return Zygotes(tmp_path, WorkerSettings())

    # A filter applies to one thread and its children.
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(start).result()
        yield started
        started.stop()


async def test_workers_start_and_answer_without_watches_of_epoll(zygotes_without_epoll: Zygotes) -> None:
    async with running_pool(zygotes_without_epoll) as pool:
        await answers(pool)
