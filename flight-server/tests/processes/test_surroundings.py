# SPDX-License-Identifier: Apache-2.0
"""Environment of a session function in a real worker: broadcasts, files, variables, memory, logs."""

import pickle
import signal
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pool_driver import (
    Reply,
    Zygotes,
    batches_of,
    exchange,
    raw_exchange,
    requests,
    running_pool,
    send_command,
    send_requests,
)
from pyspark.sql.types import LongType, StringType
from session_commands import scalar_arrow

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.pool import Pool

PYSPARK_VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))

logs_for_spark = pytest.mark.skipif(PYSPARK_VERSION < (4, 1), reason="pyspark 4.0 does not log for Spark")


def answer(reply: Reply) -> Any:
    assert reply.error is None, reply.error
    return reply.table.column(0)[0].as_py()


def broadcast_sum(number: int) -> exchange_pb2.ExchangeCommand:
    """Return a function that adds 1 to the broadcast list each time and returns its sum, which shows a fresh value."""

    def total(x):
        import pyarrow as pa
        from pyspark.broadcast import _broadcastRegistry

        value = _broadcastRegistry[number].value
        value.append(1)
        return pa.array([sum(value)] * len(x))

    return scalar_arrow(total, LongType())


async def test_a_broadcast_is_unpickled_once_for_the_tasks_of_an_application(zygotes: Zygotes, tmp_path: Path) -> None:
    path = tmp_path / "value"
    path.write_bytes(pickle.dumps([10]))
    command = broadcast_sum(5)
    other = broadcast_sum(5)
    other.task.owner.application_id = "another"
    async with running_pool(zygotes) as pool:
        sums = [
            answer(await exchange(pool, batches_of([1]), asked, broadcasts={"5": str(path)}))
            for asked in (command, command, other)
        ]
    assert sums == [11, 12, 11]


async def test_a_broadcast_that_a_function_does_not_use_is_forgotten(zygotes: Zygotes, tmp_path: Path) -> None:
    path = tmp_path / "value"
    path.write_bytes(pickle.dumps([10]))

    def known(x):
        import pyarrow as pa
        from pyspark.broadcast import _broadcastRegistry

        return pa.array([len(_broadcastRegistry)])

    async with running_pool(zygotes) as pool:
        await exchange(pool, batches_of([1]), broadcast_sum(5), broadcasts={"5": str(path)})
        assert answer(await exchange(pool, batches_of([1]), scalar_arrow(known))) == 0


async def test_modules_and_files_of_a_session_are_found(zygotes: Zygotes, tmp_path: Path) -> None:
    directories = []
    for number in (1, 2):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "answers.py").write_text(f"answer = {number}\n")
        directories.append(str(directory))

    def imports_answers(x):
        from pathlib import Path

        import answers  # type: ignore[import-not-found]
        import pyarrow as pa
        from pyspark import SparkFiles

        return pa.array([f"{answers.answer} {Path(SparkFiles.get('answers.py')).read_text().strip()}"])

    command = scalar_arrow(imports_answers, StringType())
    async with running_pool(zygotes) as pool:
        order = (directories[0], directories[0], directories[1])
        replies = [await bound_exchange(pool, command, directory) for directory in order]
        assert [answer(reply) for reply in replies] == ["1 answer = 1", "1 answer = 1", "2 answer = 2"]


async def bound_exchange(pool: Pool, command: exchange_pb2.ExchangeCommand, directory: str = "") -> Reply:
    """Run an exchange with the files in `directory`, to which its worker is bound."""
    batch = batches_of([1])
    return await raw_exchange(
        pool, batch[0].schema, requests(batch), command, modules=directory, files_directory=directory
    )


async def test_no_worker_serves_two_sessions_with_files(zygotes: Zygotes, tmp_path: Path) -> None:
    def pid(x):
        import os

        import pyarrow as pa

        return pa.array([os.getpid()])

    command = scalar_arrow(pid)
    async with running_pool(zygotes) as pool:
        fresh, bound, again, other, none = [
            answer(await bound_exchange(pool, command, name))
            for name in ("", str(tmp_path), str(tmp_path), str(tmp_path / "other"), "")
        ]
    assert fresh == bound == again
    assert len({bound, other, none}) == 3


async def test_variables_of_the_user_hold_for_the_exchange(zygotes: Zygotes) -> None:
    def variable(x):
        import os

        import pyarrow as pa

        return pa.array([os.environ.get("MODEL", "none")])

    async with running_pool(zygotes) as pool:
        given = scalar_arrow(variable, StringType(), user_environment={"MODEL": "large"})
        answers = [answer(await exchange(pool, batches_of([1]), one)) for one in (given, _without(variable))]
        assert answers == ["large", "none"]


def _without(function: Any) -> exchange_pb2.ExchangeCommand:
    return scalar_arrow(function, StringType())


async def test_local_properties_reach_the_task_context(zygotes: Zygotes) -> None:
    def local_property(x):
        import pyarrow as pa
        from pyspark import TaskContext

        return pa.array([TaskContext.get().getLocalProperty("team")])

    command = scalar_arrow(local_property, StringType())
    command.task.local_properties["team"] = "search"
    async with running_pool(zygotes) as pool:
        assert answer(await exchange(pool, batches_of([1]), command)) == "search"


async def test_the_memory_limit_holds_for_the_exchange_only(zygotes: Zygotes) -> None:
    def allocate(x):
        import pyarrow as pa

        try:
            return pa.array([len(bytearray(2 << 30)) >> 30])
        except MemoryError:
            return pa.array([-1])

    limited = scalar_arrow(allocate, limits=exchange_pb2.Limits(worker_memory_bytes=2 << 30))
    async with running_pool(zygotes) as pool:
        replies = [await exchange(pool, batches_of([1]), one) for one in (limited, scalar_arrow(allocate), limited)]
    assert [answer(reply) for reply in replies] == [-1, 2, -1]


@pytest.mark.parametrize("lines", [0, 50_000], ids=["silent", "flooding"])
async def test_a_crash_tells_where_python_was(zygotes: Zygotes, lines: int) -> None:
    def crashes(x):
        import ctypes
        import sys

        sys.stdout.write("before the crash\n" * lines)
        return ctypes.string_at(0)

    async with running_pool(zygotes) as pool:
        lease = await pool.lease(None)
        await send_command(lease, batches_of([1])[0].schema, scalar_arrow(crashes))
        await send_requests(lease, requests(batches_of([1])))
        death = await lease.death
        lease.release(LeaseOutcome.BROKEN)
    assert death.signal == signal.SIGSEGV
    assert death.stack.startswith("Fatal Python error: Segmentation fault")
    assert "in crashes" in death.stack


@logs_for_spark
async def test_what_is_logged_for_spark_comes_with_the_replies(zygotes: Zygotes) -> None:
    def logs(x):
        import logging

        logging.getLogger("mine").warning("from a logger")
        print("from a print")  # noqa: T201
        return x

    printed: list[str] = []
    async with running_pool(zygotes, on_output=lambda output: printed.append(output.line)) as pool:
        command = scalar_arrow(logs, environment={"PYSPARK_SPARK_SESSION_UUID": "session"})
        reply = await exchange(pool, batches_of([1]), command)
    assert reply.ending is FrameKind.DONE
    first, second, last = reply.log_lines
    assert "from a logger" in first
    assert "from a print" in second
    assert last.startswith("PYTHON_WORKER_LOGGING:")
    assert last.endswith(":")
    assert printed == ["from a print"]


@logs_for_spark
async def test_what_a_failing_function_logged_comes_too(zygotes: Zygotes) -> None:
    def logs_and_fails(x):
        print("about to fail")  # noqa: T201
        raise ValueError("failed")

    async with running_pool(zygotes) as pool:
        command = scalar_arrow(logs_and_fails, environment={"PYSPARK_SPARK_SESSION_UUID": "session"})
        reply = await exchange(pool, batches_of([1]), command)
    assert reply.error.kind == exchange_pb2.ERROR_KIND_USER
    assert "about to fail" in reply.log_lines[0]
