# SPDX-License-Identifier: Apache-2.0
"""Each worker has a /dev/shm of its own, where this machine lets it."""

import errno
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_driver import Zygotes, running_pool
from pyspark import cloudpickle
from session_commands import said

from updraft_server.ipc.worker_settings import WorkerSettings

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

NAME = Path(f"/dev/shm/updraft-{secrets.token_hex(8)}")


def may_mount() -> bool:
    code = "from updraft_server.linux.namespaces import *; exit(not enter_user_namespace_to_mount())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


pytestmark = pytest.mark.skipif(not may_mount(), reason="this user may not mount")


@pytest.fixture(params=["own", "machine"])
def whose(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def zygotes(tmp_path: Path, whose: str) -> Iterator[Zygotes]:
    started = Zygotes(tmp_path, WorkerSettings(allow_session_functions=True), own_shared_memory=whose == "own")
    yield started
    started.stop()
    NAME.unlink(missing_ok=True)


def leaves_a_file():
    return NAME.write_text("four")


def finds_the_file():
    return NAME.exists()


def takes_too_much():
    room = os.statvfs(NAME.parent)
    with NAME.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, room.f_blocks * room.f_bsize + 1)
        except OSError as error:
            return error.errno


async def test_what_one_worker_puts_there_only_that_worker_has(zygotes: Zygotes, whose: str) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        assert await said(pool, leaves_a_file, application="first") == "4"
        assert await said(pool, finds_the_file, application="first") == "True"
        assert await said(pool, finds_the_file, application="second") == str(whose == "machine")
        assert finds_the_file() is (whose == "machine")


@pytest.mark.parametrize("whose", ["own"])
async def test_it_has_no_room_for_more_than_half_of_all_memory(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert await said(pool, takes_too_much) == str(errno.ENOSPC)
