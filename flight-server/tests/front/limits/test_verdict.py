# SPDX-License-Identifier: Apache-2.0
"""Verdicts on failed exchanges: each row has the observations and the expected verdict."""

import asyncio
import signal
import urllib.request
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from fake_pool import FakePool, FakeWorker
from flight_messages import all_replies, command_request, echo_command
from front_harness import Running

from updraft.errors import (
    DeadlineError,
    FunctionLoadError,
    LimitError,
    ProtocolError,
    UpdraftError,
    UserError,
    WorkerError,
)
from updraft_server.front.limits.verdict import LastMemoryUse, Verdict, verdict
from updraft_server.front.relay.batch_limits import BatchTimeout
from updraft_server.front.relay.relay import RelayEnd
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.worker_events import WorkerDeath

_STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 517 in string_at
  File "/job/f.py", line 3 in crash
  File "/app/lib/python3.11/site-packages/updraft_server/worker/work.py", line 80 in run"""
_SEGFAULT, _KILLED, _UNOBSERVED = WorkerDeath(-signal.SIGSEGV, _STACK), WorkerDeath(-signal.SIGKILL), WorkerDeath()
_ALARM = WorkerDeath(-signal.SIGALRM)
_CLOSED = "the worker closed its socket"
_CONSEQUENCES = {"worker_died", "blames_function", "blames_rows", "load_failed", "exhausted_container"}
_LIMIT_BYTES = 1000


@dataclass(frozen=True)
class Row:
    """Observations of a failed exchange, and the verdict that should follow."""

    error: UpdraftError
    death: WorkerDeath | None
    follows: set[str]
    """Names of the verdict's true fields."""
    says: str = ""
    kind: type[UpdraftError] = WorkerError
    end: dict[str, Any] = field(default_factory=dict)
    """Fields of the RelayEnd."""
    request: dict[str, Any] = field(default_factory=dict)
    used_bytes: int = 0
    """Memory of the worker at the last measurement, of _LIMIT_BYTES; another worker used 1 byte."""


_LOST = {"lost_worker": True}
ROWS = {
    "the client's mistake": Row(ProtocolError("second schema"), None, set(), "second schema", ProtocolError),
    "the function raised": Row(
        UserError("KeyError: 'x'"), None, set(), "KeyError", UserError, {"reported": FrameKind.FAILED}
    ),
    "the worker crashed": Row(
        WorkerError(_CLOSED),
        _SEGFAULT,
        {"worker_died", "blames_function"},
        "the worker was killed by SIGSEGV while it ran the function f, in crash (/job/f.py:3)",
        end=_LOST,
    ),
    "the worker was killed": Row(
        WorkerError(_CLOSED), _KILLED, {"worker_died", "blames_function"}, "was killed by SIGKILL", end=_LOST
    ),
    "the worker closed its socket and runs": Row(WorkerError(_CLOSED), None, {"worker_died"}, _CLOSED, end=_LOST),
    "the worker's clock ended it": Row(
        WorkerError(_CLOSED),
        _ALARM,
        {"blames_function"},
        "the function f worked for more than 5 seconds on one batch, and its worker was ended: "
        "send smaller batches, or raise --batch-timeout-seconds of the pool",
        DeadlineError,
        _LOST,
    ),
    "an alarm of its own, with no limit": Row(
        WorkerError(_CLOSED),
        _ALARM,
        {"worker_died", "blames_function"},
        "was killed by SIGALRM",
        end={**_LOST, "batch_timeout": BatchTimeout.effective(0)},
    ),
    "it took more than it may": Row(
        LimitError("took 9 bytes"), None, {"blames_function"}, "took 9", LimitError, {"exceeded_limit": True}
    ),
    "the client failed after its worker had crashed": Row(
        ProtocolError("second schema"), _SEGFAULT, {"blames_function"}, "second schema", ProtocolError
    ),
    "an unobserved end with plenty of memory": Row(
        WorkerError(_CLOSED), _UNOBSERVED, {"worker_died"}, "ended", end=_LOST
    ),
    "an unobserved end of the worker with most memory": Row(
        WorkerError(_CLOSED),
        _UNOBSERVED,
        {"worker_died", "blames_function", "exhausted_container"},
        "the function f grew most",
        end=_LOST,
        used_bytes=_LIMIT_BYTES,
    ),
    "an unobserved end while another worker had most memory": Row(
        WorkerError(_CLOSED),
        _UNOBSERVED,
        {"worker_died"},
        "because of another exchange",
        end={**_LOST, "worker": "other"},
        used_bytes=_LIMIT_BYTES,
    ),
    "a registered function could not be loaded": Row(
        FunctionLoadError("no module x"), None, {"load_failed"}, "x", FunctionLoadError, {"reported": FrameKind.FAILED}
    ),
    "a session's function could not be loaded": Row(
        FunctionLoadError("no module x"),
        None,
        set(),
        "x",
        FunctionLoadError,
        {"reported": FrameKind.FAILED},
        {"is_session": True},
    ),
    "its load took too long": Row(
        FunctionLoadError("took too long"),
        None,
        {"load_failed", "blames_function"},
        "too long",
        FunctionLoadError,
        {"exceeded_limit": True},
    ),
    "its rows crashed a model process": Row(
        WorkerError("the model process was killed by SIGSEGV"),
        None,
        {"blames_rows"},
        "the model process",
        end={"reported": FrameKind.CRASHED},
        request={"is_batched": True},
    ),
    "rows of others crashed it": Row(
        WorkerError("the model process was killed by SIGSEGV"),
        None,
        set(),
        "the model process",
        end={"reported": FrameKind.FAILED},
        request={"is_batched": True},
    ),
    "a worker without models says so": Row(
        UserError("forged"), None, set(), "forged", UserError, {"reported": FrameKind.CRASHED}
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_verdict_is(row: Row) -> None:
    found = _verdict(row)
    assert type(found.error) is row.kind
    assert row.says in found.error.message
    assert {name for name in _CONSEQUENCES if getattr(found, name)} == row.follows


def test_the_traceback_is_where_the_worker_crashed() -> None:
    assert _verdict(ROWS["the worker crashed"]).error.traceback == _STACK


def _verdict(row: Row) -> Verdict:
    request: Any = SimpleNamespace(
        **{"function": "f", "subject": "the function f", "is_session": False, "is_batched": False, **row.request}
    )
    end = {"worker": "w", "batch_timeout": BatchTimeout.effective(5), **row.end}
    memory = LastMemoryUse()
    for used in (0, row.used_bytes):
        memory.measured({"w": _used(used), "other": _used(1)}, _LIMIT_BYTES)
    return verdict(row.error, RelayEnd(request=request, **end), row.death, memory)


def _used(memory_bytes: int) -> WorkerUsage:
    return WorkerUsage(0, "", memory_bytes)


def usage(**own_bytes: int) -> dict[str, WorkerUsage]:
    return {worker: WorkerUsage(0, "", number) for worker, number in own_bytes.items()}


def test_the_one_that_grew_most_is_blamed_and_not_the_largest() -> None:
    lost = LastMemoryUse()
    lost.measured(usage(large=500, grower=10), there_is_bytes=1000)
    lost.measured(usage(large=520, grower=400), there_is_bytes=1000)
    # The workers have ended, so this measurement finds none.
    lost.measured({}, there_is_bytes=1000)
    assert "inferred: the workers ran out of memory, and the function f grew most, by 390 bytes to 400" in (
        lost.inference("grower", "f")
    )
    assert "because of another exchange" in lost.inference("large", "f")
    assert [lost.is_blamed(worker) for worker in ("grower", "large", "")] == [True, False, False]


@pytest.mark.parametrize("own_bytes", [{}, {"a": 100, "b": 399}])
def test_workers_that_used_little_memory_were_lost_for_another_reason(own_bytes: dict[str, int]) -> None:
    lost = LastMemoryUse()
    lost.measured(usage(**own_bytes), there_is_bytes=1000)
    assert not lost.inference("b", "f")
    assert not lost.is_blamed("b")


def test_a_worker_that_came_later_says_nothing_of_memory() -> None:
    lost = LastMemoryUse()
    lost.measured(usage(a=900), there_is_bytes=1000)
    assert not lost.inference("b", "f")


@pytest.mark.parametrize(("status", "is_inferred"), [(None, True), (-9, False)])
async def test_the_client_of_a_worker_that_went_with_all_is_told_the_inference(
    running_front: Running, status: int | None, is_inferred: bool
) -> None:
    async def waits(worker: FakeWorker) -> None:
        await worker.receive()
        began.set()
        await asyncio.Event().wait()

    began = asyncio.Event()
    pool = FakePool(script=waits)
    pool.memory_limit_bytes = 1_000_000
    pool.usage = lambda: WorkerUsage(0, "", own_bytes=600_000)
    async with running_front(pool) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await began.wait()
        await front.front.running.look_at_limits()
        pool.leases[-1].die(WorkerDeath(status))
        error = (await all_replies(call))[1]
        assert error is not None
        assert ("inferred: the workers ran out of memory" in error.details()) == is_inferred
        assert front.front.running.out_of_memory == {"worker": 0, "pool": 0, "container": int(is_inferred)}


@pytest.mark.parametrize(
    ("own_bytes", "ended_by"),
    [(1001, "worker"), (900, "pool"), (500, "")],
    ids=["its own limit", "that of all together", "none"],
)
async def test_workers_that_end_for_their_memory_are_counted_once(
    running_front: Running, own_bytes: int, ended_by: str
) -> None:
    async def waits(worker: FakeWorker) -> None:
        await worker.receive()
        began.set()
        await asyncio.Event().wait()

    began = asyncio.Event()
    pool = FakePool(script=waits)
    pool.memory_limit_bytes = 1000
    pool.usage = lambda: WorkerUsage(0, "", own_bytes=own_bytes, scratch_bytes=77)
    async with running_front(pool, metrics_listen="127.0.0.1:0", worker_memory_bytes=1000) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await began.wait()
        for _ in range(2):
            await front.front.running.look_at_limits()
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
        for limit in ("worker", "pool", "container"):
            count = float(limit == ended_by)
            assert f'updraft_workers_out_of_memory_total{{limit="{limit}"}} {count}' in text
        assert ended_by or "updraft_workers_scratch_bytes 77.0" in text
        call.cancel()
