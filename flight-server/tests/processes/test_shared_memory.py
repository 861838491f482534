# SPDX-License-Identifier: Apache-2.0
"""Each worker has a /dev/shm of its own, if this machine allows it."""

import asyncio
import errno
import mmap
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mounting import needs_mounts
from pool_driver import Zygotes, leased, running_pool
from pyspark import cloudpickle
from session_commands import said

from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.linux.hostile_trees import remove_unused_files
from updraft_server.linux.landlock import LEAST_VERSION, landlock_version
from updraft_server.pool.bindings import Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, Owner
from updraft_server.pool.pool import Pool

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

NAME = Path(f"/dev/shm/updraft-{secrets.token_hex(8)}")


@pytest.fixture(params=["own", "machine"])
def whose(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def zygotes(tmp_path: Path, whose: str) -> Iterator[Zygotes]:
    started = Zygotes(tmp_path, WorkerSettings(allow_session_functions=True), shared_memory=whose)
    yield started
    started.stop()
    NAME.unlink(missing_ok=True)


def leaves_a_file():
    return NAME.write_text("four")


def keeps_shared_memory():
    import builtins
    import mmap

    NAME.write_bytes(bytes(4096))
    with NAME.open("r+b") as file:
        vars(builtins)["kept"] = mmap.mmap(file.fileno(), 0)


def finds_the_file():
    return NAME.exists()


def reads_the_file():
    try:
        return NAME.read_text()
    except OSError as error:
        return type(error).__name__


def fills_a_file_that_nobody_maps():
    NAME.write_bytes(bytes(64 << 20))


def takes_too_much():
    room = os.statvfs(NAME.parent)
    with NAME.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, room.f_blocks * room.f_bsize + 1)
        except OSError as error:
            return error.errno


@needs_mounts
async def test_what_one_worker_puts_there_only_that_worker_has(zygotes: Zygotes, whose: str) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        assert await said(pool, leaves_a_file, application="first") == "4"
        assert await said(pool, finds_the_file, application="first") == "True"
        assert await said(pool, finds_the_file, application="second") == str(whose == "machine")
        assert finds_the_file() is (whose == "machine")


@needs_mounts
@pytest.mark.parametrize("whose", ["own"])
async def test_it_has_no_room_for_more_than_half_of_all_memory(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert await said(pool, takes_too_much) == str(errno.ENOSPC)


@needs_mounts
@pytest.mark.parametrize("whose", ["own"])
async def test_files_that_nobody_maps_count_as_the_workers_memory(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        await said(pool, fills_a_file_that_nobody_maps, application="first")
        usage = await pool.measure([worker.worker for worker in pool.workers if worker.state == "idle"])
        assert [used.own_bytes >= 64 << 20 for used in usage.values()] == [True]


async def gone_soon(pool: Pool) -> None:
    """Wait until another owner does not find the file: the zygote may be busy for a moment."""
    for _ in range(600):
        if await said(pool, finds_the_file, application="second") == "False":
            return
        await asyncio.sleep(0.05)
    pytest.fail("what a function has left stays")


async def test_what_a_function_leaves_in_a_pools_own_goes_with_its_exchange(
    zygotes_that_may_not_mount: Zygotes,
) -> None:
    async with running_pool(zygotes_that_may_not_mount, workers=2) as pool:
        assert await said(pool, leaves_a_file, application="first") == "4"
        await gone_soon(pool)


def writes_a_file():
    try:
        return NAME.write_text("four")
    except OSError as error:
        return type(error).__name__


@pytest.mark.skipif(landlock_version() < LEAST_VERSION, reason="this kernel has no Landlock")
@pytest.mark.parametrize("zygotes_that_may_not_mount", ["own"], indirect=True)
async def test_what_a_function_leaves_in_the_machines_reaches_no_tenant(zygotes_that_may_not_mount: Zygotes) -> None:
    async with running_pool(zygotes_that_may_not_mount, workers=3) as pool:
        # A client without a tenant gets its application as its tenant.
        assert await said(pool, writes_a_file, application="nameless", tenant="nameless") == "4"
        assert await said(pool, reads_the_file, application="as nameless") == "four"
        for tenant in ("first", "second"):
            assert await said(pool, writes_a_file, application="app", tenant=tenant) == "PermissionError"
            assert await said(pool, reads_the_file, application="app", tenant=tenant) == "PermissionError"


async def test_what_a_worker_keeps_in_use_there_stays(zygotes_that_may_not_mount: Zygotes) -> None:
    async with running_pool(zygotes_that_may_not_mount) as pool:
        await said(pool, keeps_shared_memory, application="first")
        assert await said(pool, finds_the_file, application="first") == "True"
        # The pool's only place goes to this exchange.
        await gone_soon(pool)


@asynccontextmanager
async def exchange_of(pool: Pool, application: str) -> AsyncIterator[None]:
    """Hold an exchange open for the block."""
    lease = await leased(pool, None, Binding(Owner("", application, "")))
    yield
    lease.release(LeaseOutcome.BROKEN)


async def test_what_a_worker_keeps_in_use_is_gone_before_another_owner_gets_its_place(
    zygotes_that_may_not_mount: Zygotes,
) -> None:
    async with running_pool(zygotes_that_may_not_mount, fresh_workers=1) as pool:
        for number in range(5):
            await until(pool, lambda: pool.fresh == 1)
            await said(pool, keeps_shared_memory, application=f"keeps-{number}")
            await until(pool, lambda: pool.fresh == 1)
            assert await said(pool, finds_the_file, application=f"looks-{number}") == "False"


async def test_what_a_function_leaves_stays_while_its_owner_has_another_exchange(
    zygotes_that_may_not_mount: Zygotes,
) -> None:
    async with running_pool(zygotes_that_may_not_mount, workers=3) as pool:
        async with exchange_of(pool, "first"):
            assert await said(pool, leaves_a_file, application="first") == "4"
            assert await said(pool, finds_the_file, application="first") == "True"
        await gone_soon(pool)


async def test_what_a_function_leaves_goes_while_another_owner_has_an_exchange(
    zygotes_that_may_not_mount: Zygotes,
) -> None:
    async with running_pool(zygotes_that_may_not_mount, workers=3) as pool, exchange_of(pool, "running"):
        assert await said(pool, leaves_a_file, application="first") == "4"
        await gone_soon(pool)


MANY = 40_000


def leaves_many_files():
    for number in range(MANY):
        NAME.with_name(f"{NAME.name}-{number}").touch()


def counts_files():
    return sum(NAME.with_name(f"{NAME.name}-{number}").exists() for number in range(MANY))


async def test_nobody_waits_for_the_removal_of_many_files(zygotes_that_may_not_mount: Zygotes) -> None:
    async with running_pool(zygotes_that_may_not_mount, workers=3) as pool, exchange_of(pool, "neighbour"):
        measured = [worker.worker for worker in pool.workers]
        await said(pool, leaves_many_files, application="first")
        began = time.monotonic()
        longest_seconds = 0.0
        while await said(pool, counts_files, application="second") != "0":
            asked = time.monotonic()
            assert await pool.measure(measured)
            longest_seconds = max(longest_seconds, time.monotonic() - asked)
        assert longest_seconds < 0.3 * (time.monotonic() - began)


def left_after_removal(directory: Path) -> str:
    left, hidden, used, opened = (directory / name for name in ("left", "hidden", "used", "opened"))
    for path in (left, hidden, used, opened):
        path.write_text("left")
    (directory / "link").symlink_to(left)
    os.mkfifo(directory / "pipe")
    with opened.open("a"), used.open("r+") as file, mmap.mmap(file.fileno(), 0):
        file.close()
        for name in ("hidden", "used", "pipe"):
            (directory / name).chmod(0)
        assert remove_unused_files(directory, within_seconds=60)
    return " ".join(sorted(path.name for path in directory.iterdir()))


def test_only_plain_files_that_nobody_uses_are_removed() -> None:
    # An ordinary user cannot open files without permissions.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                if os.getuid() == 0:
                    os.setgroups([])
                    os.setresgid(65534, 65534, 65534)
                    os.setresuid(65534, 65534, 65534)
                os.write(write, left_after_removal(Path(name)).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as result:
            assert result.read() == "link opened pipe used"
        os.wait()


def test_the_removal_of_many_files_stops_in_time(tmp_path: Path) -> None:
    (tmp_path / "left").touch()
    assert not remove_unused_files(tmp_path, within_seconds=-1)
    assert remove_unused_files(tmp_path, within_seconds=60)
    assert not list(tmp_path.iterdir())
