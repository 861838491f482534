# SPDX-License-Identifier: Apache-2.0
"""Failures of user code: the exchange ends with one clear error, and the pool continues."""

import sys
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pool_driver import Reply, Zygotes, batches_of, exchange, numbers, running_pool
from pyspark.sql.types import LongType, StringType
from session_commands import (
    BATCHED,
    SCALAR_ARROW,
    SCALAR_ARROW_ITER,
    SCALAR_PANDAS,
    pickled_rows,
    scalar_arrow,
    session_command,
    udf,
)

from updraft.errors import MAX_MESSAGE_BYTES, MAX_TRACEBACK_BYTES, ProtocolError
from updraft.v1 import exchange_pb2
from updraft_server.ipc.frame_stream import PeerClosedError
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.worker.pyspark.adapters import minor_version


async def failing(
    zygotes: Zygotes, command: exchange_pb2.ExchangeCommand, batches: list[pa.RecordBatch] | None = None
) -> exchange_pb2.Error:
    """Return the error of an exchange, after which the pool must still work."""
    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, batches or batches_of([2, 2]), command)
        assert reply.ending is FrameKind.FAILED
        await answers(pool)
    assert isinstance(reply.error, exchange_pb2.Error)
    return reply.error


async def answers(pool: Any) -> Reply:
    await until(pool, lambda: pool.idle > 0)
    reply = await exchange(pool, batches_of([1]))
    assert reply.error is None
    return reply


def fail_with(error: BaseException) -> Any:
    def function(x):
        raise error

    return function


async def test_a_column_with_wild_offsets_never_leaves_the_worker(zygotes: Zygotes) -> None:
    def wild(column):
        offsets = pa.array([0, 1 << 20, 4], pa.int32()).buffers()[1]
        return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abcd")])

    error = await failing(zygotes, session_command(SCALAR_ARROW, udf(wild, StringType())))
    assert error.kind == exchange_pb2.ERROR_KIND_USER
    assert "not valid Arrow" in error.message


async def test_an_exception_keeps_its_class_its_traceback_and_its_batch(zygotes: Zygotes) -> None:
    def second_batch_fails(x):
        if x[0].as_py() == 2:
            raise ValueError("no such thing: ø")
        return x

    error = await failing(zygotes, scalar_arrow(second_batch_fails))
    assert error.kind == exchange_pb2.ERROR_KIND_USER
    assert error.exception_class == "ValueError"
    assert error.message == "ValueError: no such thing: ø"
    assert error.sequence == 2
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith("ValueError: no such thing: ø\n")
    assert "second_batch_fails" in error.traceback
    assert "updraft_server" not in error.traceback


async def test_a_simplified_traceback_has_only_the_users_frames(zygotes: Zygotes) -> None:
    environment = {"SPARK_SIMPLIFIED_TRACEBACK": "1"}
    fails = udf(fail_with(KeyError("x")), LongType())
    error = await failing(zygotes, session_command(SCALAR_PANDAS, fails, environment=environment))
    assert "pyspark" not in error.traceback
    assert error.traceback.count('File "') == 1


@pytest.mark.skipif(minor_version(pyspark.__version__) < (4, 0), reason="Spark 3.5 hides no traceback")
async def test_a_hidden_traceback_is_the_message_alone(zygotes: Zygotes) -> None:
    error = await failing(zygotes, scalar_arrow(fail_with(KeyError("x")), environment={"SPARK_HIDE_TRACEBACK": "1"}))
    assert error.traceback == "KeyError: 'x'\n"


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), SystemExit("bye"), KeyboardInterrupt(), MemoryError(), GeneratorExit(), StopIteration(1)],
    ids=repr,
)
async def test_exceptions_that_end_other_programs_are_errors_like_any(zygotes: Zygotes, error: BaseException) -> None:
    found = await failing(zygotes, scalar_arrow(fail_with(error)))
    assert found.kind == exchange_pb2.ERROR_KIND_USER
    assert type(error).__name__ in found.traceback


async def test_an_error_of_our_own_tree_that_a_function_raises_is_the_functions(zygotes: Zygotes) -> None:
    error = await failing(zygotes, scalar_arrow(fail_with(ProtocolError("no protocol of ours"))))
    assert (error.kind, error.exception_class) == (exchange_pb2.ERROR_KIND_USER, "updraft.errors.ProtocolError")


async def test_endless_recursion_is_an_error(zygotes: Zygotes) -> None:
    def recurse(x):
        return recurse(x)

    error = await failing(zygotes, scalar_arrow(recurse))
    assert (error.kind, error.exception_class) == (exchange_pb2.ERROR_KIND_USER, "RecursionError")


async def test_a_huge_message_is_cut_at_its_beginning(zygotes: Zygotes) -> None:
    error = await failing(zygotes, scalar_arrow(fail_with(ValueError("ø€" * 300_000 + " the end"))))
    assert len(error.traceback.encode()) <= MAX_TRACEBACK_BYTES
    assert error.traceback_truncated
    assert error.traceback.endswith("the end\n")
    assert len(error.message.encode()) <= MAX_MESSAGE_BYTES


async def test_an_exception_that_cannot_be_printed_is_still_an_error(zygotes: Zygotes) -> None:
    def function(x):
        class UnprintableError(Exception):
            def __str__(self):
                raise RuntimeError("no")

        raise UnprintableError

    error = await failing(zygotes, scalar_arrow(function))
    assert error.kind == exchange_pb2.ERROR_KIND_USER
    assert error.exception_class.endswith("UnprintableError")


async def test_a_function_that_cannot_be_unpickled_is_an_error(zygotes: Zygotes) -> None:
    broken = exchange_pb2.Udf(arguments=[exchange_pb2.Argument(offset=0)], commands=[b"not a pickle"])
    error = await failing(zygotes, session_command(250, broken))
    assert (error.kind, error.sequence) == (exchange_pb2.ERROR_KIND_USER, 0)
    assert "UnpicklingError" in error.traceback


@pytest.mark.parametrize("returned", [0, 1, 3], ids=["none", "fewer", "more"])
async def test_a_wrong_number_of_rows_is_a_user_error(zygotes: Zygotes, returned: int) -> None:
    error = await failing(zygotes, scalar_arrow(lambda x: pa.array([1] * returned, pa.int64())))
    assert error.kind == exchange_pb2.ERROR_KIND_USER
    assert str(returned) in error.message


@pytest.mark.parametrize("yielded", [3, 5], ids=["fewer", "more"])
async def test_a_wrong_number_of_rows_from_an_iterator_is_a_user_error(zygotes: Zygotes, yielded: int) -> None:
    def function(batches):
        for _ in batches:
            pass
        yield pa.array([1] * yielded, pa.int64())

    error = await failing(zygotes, session_command(SCALAR_ARROW_ITER, udf(function, LongType())))
    assert error.kind == exchange_pb2.ERROR_KIND_USER


async def test_the_wrong_type_of_a_result_is_a_user_error(zygotes: Zygotes) -> None:
    error = await failing(zygotes, scalar_arrow(lambda x: "text"))
    assert error.kind == exchange_pb2.ERROR_KIND_USER


async def test_a_pickled_udf_that_fails_is_an_error(zygotes: Zygotes) -> None:
    command = session_command(BATCHED, udf(lambda x: 1 // x, LongType()))
    error = await failing(zygotes, command, [pickled_rows([[(1,)], [(0,)]])])
    assert (error.kind, error.exception_class) == (exchange_pb2.ERROR_KIND_USER, "ZeroDivisionError")


async def test_an_empty_pickled_list_is_a_protocol_error(zygotes: Zygotes) -> None:
    command = session_command(BATCHED, udf(lambda x: x, LongType()))
    error = await failing(zygotes, command, [pickled_rows([[(1,)], []])])
    assert error.kind == exchange_pb2.ERROR_KIND_PROTOCOL
    assert "every value must contain a row" in error.message


async def test_a_function_that_hides_a_protocol_error_does_not_get_away_with_it(zygotes: Zygotes) -> None:
    def hides(batches):
        try:
            yield from batches
        except Exception:
            return

    from pool_driver import raw_exchange

    command = session_command(SCALAR_ARROW_ITER, udf(hides, LongType()))
    async with running_pool(zygotes) as pool:
        reply = await raw_exchange(pool, numbers(0).schema, [(b"", b"garbage", b"")], command)
    assert reply.error is not None
    assert reply.error.kind == exchange_pb2.ERROR_KIND_PROTOCOL


async def test_a_crash_in_c_says_where_in_the_log(zygotes: Zygotes) -> None:
    lines: list[str] = []

    def crashing(x):
        import ctypes

        ctypes.string_at(0)

    async with running_pool(zygotes, on_output=lambda output: lines.append(output.line)) as pool:
        with pytest.raises(PeerClosedError):
            await exchange(pool, batches_of([1]), scalar_arrow(crashing))
    assert any("Segmentation fault" in line for line in lines)
    assert any("crashing" in line for line in lines)


def exits(x):
    import os

    os._exit(3)


def crashes(x):
    import ctypes

    ctypes.string_at(0)


def kills_itself(x):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (exits, "exited with code 3"),
        (crashes, "was killed by SIGSEGV"),
        (kills_itself, "was killed by SIGKILL"),
    ],
    ids=["exit", "segfault", "kill"],
)
async def test_a_worker_that_dies_says_how_and_is_replaced(zygotes: Zygotes, function: Any, words: str) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    command = scalar_arrow(function)
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    async with running_pool(zygotes) as pool:
        from pool_driver import receive_reply, requests, send_command, send_requests

        lease = await pool.lease(None)
        await send_command(lease, numbers(1).schema, command)
        await send_requests(lease, requests(batches_of([1])))
        with pytest.raises(PeerClosedError):
            await receive_reply(lease)
        assert str(await lease.death) == words
        lease.release(LeaseOutcome.BROKEN)
        await answers(pool)


async def test_an_unknown_kind_of_function_is_refused(zygotes: Zygotes) -> None:
    error = await failing(zygotes, session_command(208, udf(lambda x: x, LongType())))
    assert error.kind == exchange_pb2.ERROR_KIND_FUNCTION_REFUSED
    assert "208" in error.message


async def test_a_reply_that_cannot_be_split_and_is_too_large_is_a_limit(zygotes: Zygotes) -> None:
    limits = exchange_pb2.Limits(max_reply_batch_bytes=1000)
    command = scalar_arrow(lambda x: pa.array(["y" * 1000] * len(x)), StringType(), limits=limits)
    error = await failing(zygotes, command)
    assert error.kind == exchange_pb2.ERROR_KIND_LIMIT
