# SPDX-License-Identifier: Apache-2.0
"""Each worker has terminals of its own, if this machine allows it; otherwise terminals are out of reach."""

import os
import sys
from collections.abc import Iterator

import pytest
from mounting import needs_mounts
from pool_driver import Zygotes, running_pool
from pyspark import cloudpickle
from session_commands import said

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def operators_terminal() -> Iterator[str]:
    """Open a terminal at which an operator might be typing."""
    controlling, terminal = os.openpty()
    yield os.ttyname(terminal)
    os.close(controlling)
    os.close(terminal)


def uses_a_terminal():
    controlling, terminal = os.openpty()
    screen = os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NOCTTY)
    os.write(screen, b"seen")
    return os.read(controlling, 4).decode()


def takes_terminals_without_end():
    taken: list[int] = []
    try:
        while len(taken) < 1000:
            taken.extend(os.openpty())
    except OSError as error:
        return f"{type(error).__name__} after {len(taken) // 2}"
    finally:
        for end in taken:
            os.close(end)
    return "no limit"


def unlocks_a_new_one():
    import errno
    import fcntl

    answers = []
    for number in (0x80045430, 0x40045431, 0x5441):
        try:
            fcntl.ioctl(1, number, bytes(4))
        except OSError as error:
            answers.append(errno.errorcode[error.errno or 0])
    return " ".join(answers)


def opens(path):
    def open_it():
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))
        except OSError as error:
            return type(error).__name__
        return "open"

    return open_it


@needs_mounts
async def test_a_function_uses_terminals_that_nobody_else_has(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert await said(pool, uses_a_terminal) == "seen"


@needs_mounts
async def test_a_function_leaves_terminals_to_the_rest_of_the_machine(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert await said(pool, takes_terminals_without_end) == "OSError after 64"


@needs_mounts
async def test_a_function_does_not_find_the_terminals_of_the_pools_user(
    zygotes: Zygotes, operators_terminal: str
) -> None:
    async with running_pool(zygotes) as pool:
        assert await said(pool, opens(operators_terminal)) == "FileNotFoundError"


async def test_where_nobody_may_mount_terminals_are_out_of_reach(
    zygotes_that_may_not_mount: Zygotes, operators_terminal: str
) -> None:
    async with running_pool(zygotes_that_may_not_mount) as pool:
        assert await said(pool, opens(operators_terminal)) == "PermissionError"


async def test_where_nobody_may_mount_no_terminal_is_made(zygotes_that_may_not_mount: Zygotes) -> None:
    controlling, _ = ends = os.openpty()
    made = f"/proc/{os.getpid()}/fd/{controlling}"
    async with running_pool(zygotes_that_may_not_mount) as pool:
        for path in ("/dev/ptmx", "/dev/pts/ptmx", made):
            assert await said(pool, opens(path)) == "PermissionError"
        # Without Landlock a function can open it, but it stays locked and its number unknown.
        assert await said(pool, unlocks_a_new_one) == "EPERM EPERM EPERM"
    for end in ends:
        os.close(end)
