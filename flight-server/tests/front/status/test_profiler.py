# SPDX-License-Identifier: Apache-2.0
"""A profile counts only stacks of exchanges that its caller may see."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

import pytest

from updraft.errors import PoolFullError
from updraft_server.front.status import profiler as profiler_module
from updraft_server.front.status.activity import Activity, OpenExchange
from updraft_server.front.status.profiler import HERTZ, MOST_PROFILES, Profiler, folded
from updraft_server.ipc.model_packets import ModelReplica, ModelUsage
from updraft_server.pool.worker_events import Reader

ANN, BOB = Reader("ann", None, "key:1"), Reader("bob", None, "key:2")
STACKS = """Thread 0x01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x02 (most recent call first):
  File "/home/me/helper.py", line 3 in helps
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x03 (most recent call first):
  File "/home/me/shop;x.py", line 9 in greet
  File "/venv/lib/python3.11/site-packages/updraft/functions/scalar.py", line 5 in call
  File "/venv/lib/python3.11/site-packages/updraft_server/worker/process.py", line 5 in run
  File "/venv/lib/python3.11/site-packages/updraft_server/zygote/forks.py", line 169 in fork
  File "<frozen runpy>", line 198 in _run_module_as_main
"""
MAIN = "greeting;run (updraft_server/worker/process.py);call (updraft/functions/scalar.py);greet (/home/me/shop,x.py)"


def test_a_stack_is_folded_from_the_function_to_its_innermost_call() -> None:
    helper = "greeting;_bootstrap (threading.py);helps (/home/me/helper.py)"
    assert folded("greeting", STACKS) == [helper, MAIN]
    assert folded("greeting", "") == []


def opened(activity: Activity, function: str, worker: str, *readers: Reader) -> OpenExchange:
    exchange = activity.begin()
    exchange.identity, exchange.worker, exchange.readers = {"function": function}, worker, frozenset(readers)
    return exchange


def profiler(activity: Activity, stack: Callable[[str], Awaitable[str | None]]) -> Profiler:
    replica = ModelReplica("m-1", 0, 1, "ready", 0, 0)
    return Profiler(activity, stack, lambda: [ModelUsage("guess", "", [replica], 1, 0, 0, [])])


@pytest.mark.parametrize(
    ("function", "readers", "looked_at"),
    [
        ("", frozenset({ANN}), {"ann's", "ann's other"}),
        ("greeting", frozenset({ANN}), {"ann's"}),
        ("greeting", None, {"ann's", "bob's"}),
        ("guess", None, {"m-1"}),
        ("guess", frozenset({ANN}), set()),
        ("", None, {"ann's", "ann's other", "bob's", "m-1"}),
    ],
)
async def test_only_the_callers_own_exchanges_are_looked_at(
    function: str, readers: frozenset[Reader] | None, looked_at: set[str]
) -> None:
    activity, asked = Activity(), set()
    opened(activity, "greeting", "ann's", ANN)
    opened(activity, "total", "ann's other", ANN)
    opened(activity, "greeting", "bob's", BOB)
    opened(activity, "greeting", "", ANN)

    async def stack(worker: str) -> str:
        asked.add(worker)
        return STACKS

    await profiler(activity, stack).profile(function, 0.001, readers)
    assert asked == looked_at


async def test_samples_are_counted() -> None:
    activity = Activity()
    opened(activity, "greeting", "w-1", ANN)

    async def stack(_: str) -> str:
        return STACKS

    profile = await profiler(activity, stack).profile("greeting", 0.2, frozenset({ANN}))
    assert 1 <= profile.samples <= 0.2 * HERTZ + 1
    assert profile.stacks[MAIN] == profile.samples


async def test_a_stack_of_the_next_callers_exchange_is_dropped() -> None:
    activity = Activity()
    exchange = opened(activity, "greeting", "w-1", ANN)

    async def stack(_: str) -> str:
        exchange.worker = ""
        return STACKS

    profile = await profiler(activity, stack).profile("", 0.001, frozenset({ANN}))
    assert (profile.samples, profile.stacks) == (0, {})


async def test_few_profiles_run_at_a_time() -> None:
    activity = Activity()

    async def stack(_: str) -> None:
        return None

    busy = profiler(activity, stack)
    callers = [frozenset({Reader(f"caller {number}", None, "key")}) for number in range(MOST_PROFILES + 1)]
    running = [asyncio.create_task(busy.profile("", 60, caller)) for caller in callers[:-1]]
    await asyncio.sleep(0)
    with pytest.raises(PoolFullError, match="try again when one has ended"):
        await busy.profile("", 1, callers[-1])
    assert (await busy.profile("", 0.001, None)).samples == 0, "callers who may see all exchanges always get one"
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert (await busy.profile("", 0.001, None)).samples == 0


async def test_a_caller_has_one_profile_at_a_time() -> None:
    async def stack(_: str) -> None:
        return None

    busy = profiler(Activity(), stack)
    first = asyncio.create_task(busy.profile("", 60, frozenset({ANN})))
    await asyncio.sleep(0)
    with pytest.raises(PoolFullError):
        await busy.profile("", 1, frozenset({Reader("ann", None, "another key")}))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


def test_forged_stacks_cost_little() -> None:
    began = time.monotonic()
    forged = "\n".join(f'  File "{"/" * length}", line 1 in g' for length in (500, 65_536) for _ in range(3))
    assert len(folded("f", forged)) == 1
    deep = "\n".join(f'  File "/a/b{number}.py", line 1 in g' for number in range(5_000))
    assert folded("f", deep)[0].count(";") <= 200
    assert time.monotonic() - began < 5, "a pattern is not quadratic in what a function writes"


async def test_the_stacks_of_a_profile_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler_module, "_MOST_CHARACTERS", 100)
    activity, number = Activity(), itertools.count()
    opened(activity, "greeting", "w-1", ANN)

    async def stack(_: str) -> str:
        return f'  File "/a/b.py", line 1 in never_the_same_{next(number)}\n'

    profile = await profiler(activity, stack).profile("", 0.5, frozenset({ANN}))
    assert sum(len(stack) for stack in profile.stacks) < 200
    assert profile.samples == sum(profile.stacks.values())
