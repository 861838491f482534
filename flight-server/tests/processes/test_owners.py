# SPDX-License-Identifier: Apache-2.0
"""A worker serves one owner: nothing that one owner leaves in its process is visible to another."""

import json
from typing import Any

import pytest
from pool_driver import (
    Reply,
    Zygotes,
    batches_of,
    binding_of,
    echo_command,
    exchange,
    leased,
    receive_reply,
    requests,
    running_pool,
    send_command,
    send_requests,
)
from pyspark.sql.types import StringType
from session_commands import scalar_arrow

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.pool import Pool

SECRET = "nobody else's business"


def look(x, secret_in_two=("nobody else's", " business")):
    """Return the process id, and what another owner left in the process."""
    import gc
    import json
    import os
    import sys
    import threading

    import pyarrow as pa

    secret = "".join(secret_in_two)
    seen = {
        "pid": os.getpid(),
        "module": hasattr(sys.modules["json"], "left_behind"),
        "patched": json.dumps.__name__ != "dumps",
        "extra modules": [name for name in sys.modules if name.startswith("left_behind")],
        "variable": os.environ.get("LEFT_BEHIND"),
        "threads": threading.active_count(),
        "memory": any(
            type(item) is str and item == secret for each in gc.get_objects() if type(each) is list for item in each
        ),
    }
    return pa.array([json.dumps(seen)] * len(x))


def leave_behind(x, secret=SECRET):
    import atexit
    import gc
    import json
    import os
    import sys
    import types

    import pyarrow as pa

    json.left_behind = [secret]  # type: ignore[attr-defined]
    sys.modules["left_behind"] = types.ModuleType("left_behind")
    os.environ["LEFT_BEHIND"] = secret
    atexit.register(print, secret)
    gc.callbacks.append(lambda *_: None)
    return pa.array([str(os.getpid())] * len(x))


def leave_a_thread(x):
    import threading
    import time

    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return x.cast("string")


def command_of(application: str, function=look, tenant_session: str = "") -> exchange_pb2.ExchangeCommand:
    import sys

    from pyspark import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        command = scalar_arrow(function, StringType())
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    command.task.owner.CopyFrom(exchange_pb2.Owner(application_id=application, session_id=tenant_session))
    return command


async def ran(pool: Pool, application: str, function=look, session: str = "") -> Reply:
    reply = await exchange(pool, batches_of([1]), command_of(application, function, session))
    assert reply.error is None
    return reply


async def seen(pool: Pool, application: str, session: str = "") -> dict[str, Any]:
    return dict(json.loads((await ran(pool, application, session=session)).table.column(0)[0].as_py()))


async def pid(pool: Pool, application: str, session: str = "") -> int:
    return int((await seen(pool, application, session))["pid"])


async def test_two_owners_never_meet_in_a_process_and_each_keeps_its_own(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2, fresh_workers=1) as pool:
        of_a, of_b = await pid(pool, "a"), await pid(pool, "b")
        assert of_a != of_b
        for _ in range(2):
            assert (await pid(pool, "a"), await pid(pool, "b")) == (of_a, of_b)


@pytest.mark.parametrize("fresh_workers", [0, 1])
async def test_owners_that_share_one_place_share_no_process(zygotes: Zygotes, fresh_workers: int) -> None:
    async with running_pool(zygotes, fresh_workers=fresh_workers) as pool:
        owners = [("a",), ("b",), ("a",), ("b",), ("b", "s"), ("b", "t"), ("b", "t")]
        pids = [await pid(pool, *owner) for owner in owners]
    assert len(set(zip(owners, pids, strict=True))) == len(set(pids)), "no process had two owners"
    assert pids[-1] == pids[-2]
    # With spare workers, a returning owner finds its own worker.
    assert (pids[0] == pids[2]) is bool(fresh_workers)


async def test_what_an_owner_leaves_behind_is_its_own(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, fresh_workers=1) as pool:
        before = await seen(pool, "b")
        left = int((await ran(pool, "a", leave_behind)).table.column(0)[0].as_py())
        its_own = await seen(pool, "a")
        assert (its_own["pid"], its_own["module"], its_own["memory"]) == (left, True, True)
        after = await seen(pool, "b")
        assert (before.pop("pid"), after["pid"]) != (left, left)
        assert after.pop("pid") != left
        assert after == before
        assert (after["module"], after["extra modules"], after["variable"], after["memory"]) == (False, [], None, False)


async def test_a_thread_of_an_owner_ends_with_its_worker(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, fresh_workers=1) as pool:
        before = await seen(pool, "b")
        assert (await ran(pool, "a", leave_a_thread)).ending is FrameKind.RETIRED
        await until(pool, lambda: pool.idle == 1)
        assert (await seen(pool, "b"))["threads"] == before["threads"]


@pytest.mark.parametrize("application", ["a", ""])
async def test_a_registered_function_never_runs_where_a_session_did_nor_before_one(
    zygotes: Zygotes, application: str
) -> None:
    async with running_pool(zygotes, fresh_workers=1) as pool:
        workers = []
        for command in (command_of(application), echo_command(), command_of(application)):
            lease = await leased(pool, None, binding_of(command))
            workers.append(lease.worker)
            lease.release(LeaseOutcome.CLEAN)
    assert workers[1] not in (workers[0], workers[2])
    assert (workers[0] == workers[2]) is bool(application)


async def test_a_session_of_no_application_is_served_by_a_process_of_its_own(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, fresh_workers=1) as pool:
        replies = [await ran(pool, "") for _ in range(3)]
    assert [reply.ending for reply in replies] == [FrameKind.RETIRED] * 3
    assert len({json.loads(reply.table.column(0)[0].as_py())["pid"] for reply in replies}) == 3


@pytest.mark.parametrize(
    ("first", "second"), [("a", "b"), ("a", None), (None, "a")], ids=["owners", "registered after", "session after"]
)
async def test_a_worker_refuses_what_a_front_that_is_wrong_sends_it(
    zygotes: Zygotes, first: str | None, second: str | None
) -> None:
    commands = [echo_command() if name is None else command_of(name) for name in (first, second)]
    batches = batches_of([1])
    async with running_pool(zygotes) as pool:
        lease = await leased(pool, None, binding_of(commands[0]))
        replies = []
        for command in commands:
            await send_command(lease, batches[0].schema, command)
            await send_requests(lease, requests(batches))
            replies.append(await receive_reply(lease))
        lease.release(LeaseOutcome.BROKEN)
    assert [reply.ending for reply in replies] == [FrameKind.DONE, FrameKind.FAILED]
    assert "another owner" in replies[1].error.message
    assert (replies[1].batches, replies[1].finish) == ([], None)
