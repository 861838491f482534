# SPDX-License-Identifier: Apache-2.0
"""A reused worker keeps nothing of the previous exchange."""

import asyncio
import json
import resource
import time

import pyarrow as pa
import pyspark
import pytest
from pool_driver import Zygotes, batches_of, exchange, running_pool
from pyspark.sql.types import StringType
from session_commands import scalar_arrow

from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.interface import until
from updraft_server.pool.worker_events import WorkerOutput
from updraft_server.worker.pyspark.adapters import minor_version


def look_around(x):
    """Return everything that a function can see of its process."""
    import json
    import logging
    import os
    import random
    import signal
    import sys
    import warnings

    import pyarrow as pa
    from pyspark.accumulators import _accumulatorRegistry
    from pyspark.broadcast import _broadcastRegistry

    seen = {
        "pid": os.getpid(),
        "environment": sorted(os.environ.items()),
        "path": sys.path,
        "directory": os.getcwd(),  # noqa: PTH109
        "umask": os.umask(0o22),
        "signal": str(signal.getsignal(signal.SIGALRM)),
        "handlers": len(logging.getLogger().handlers),
        "filters": len(warnings.filters),
        "accumulators": len(_accumulatorRegistry),
        "broadcasts": len(_broadcastRegistry),
        "recursion": sys.getrecursionlimit(),
        "random": random.random(),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
    }
    return pa.array([json.dumps(seen)] * len(x))


def make_a_mess(x):
    import logging
    import os
    import random
    import signal
    import sys
    import warnings

    from pyspark.accumulators import AddingAccumulatorParam, _deserialize_accumulator
    from pyspark.broadcast import _broadcastRegistry

    os.environ["SECRET"] = "left behind"
    sys.path.insert(0, "/elsewhere")
    os.chdir("/")
    os.umask(0)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(1000)
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    _deserialize_accumulator(1, 0, AddingAccumulatorParam(0)).add(1)
    _broadcastRegistry[1] = None
    sys.setrecursionlimit(5000)
    random.seed(1)
    sys.stdout = None
    return x


def by_value(function, return_type=None, **options):
    import sys

    from pyspark import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        return scalar_arrow(function, return_type, **options)
    finally:
        cloudpickle.unregister_pickle_by_value(module)


async def test_reuse_leaves_no_trace(zygotes: Zygotes) -> None:
    look = by_value(look_around, StringType())
    mess = by_value(make_a_mess, environment={"TZ": "Asia/Tokyo", "SPARK_HIDE_TRACEBACK": "1"})
    async with running_pool(zygotes) as pool:
        replies = [await exchange(pool, batches_of([1]), command) for command in (look, mess, look)]
    assert [reply.ending for reply in replies] == [FrameKind.DONE] * 3
    before, after = (json.loads(replies[index].table.column(0)[0].as_py()) for index in (0, 2))
    assert before.pop("random") != after.pop("random")
    assert after == before


async def test_workers_do_not_share_their_random_numbers(zygotes: Zygotes) -> None:
    def draws(x):
        import random

        import numpy as np
        import pyarrow as pa

        return pa.array([f"{random.random()} {np.random.random()}"])

    command = scalar_arrow(draws, StringType())
    async with running_pool(zygotes, workers=2) as pool:
        replies = [await exchange(pool, batches_of([1]), command) for _ in range(2)]
        first = await pool.lease(None)
        replies.append(await exchange(pool, batches_of([1]), command))
        del first
    drawn = [number for reply in replies for number in reply.table.column(0)[0].as_py().split()]
    assert len(set(drawn)) == len(drawn)


async def test_memory_that_a_worker_has_freed_is_there_for_the_next_batch_without_a_page_fault(
    zygotes: Zygotes,
) -> None:
    def page_faults_of_batches(x):
        import resource

        import numpy as np
        import pyarrow as pa

        def work_on_a_batch_of_16_mib():
            return len([np.ones(1 << 18) for _ in range(8)])

        work_on_a_batch_of_16_mib()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            work_on_a_batch_of_16_mib()
        return pa.array([resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before] * len(x))

    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, batches_of([1]), scalar_arrow(page_faults_of_batches))
    pages_of_a_batch = (16 << 20) // resource.getpagesize()
    assert reply.table.column(0)[0].as_py() < pages_of_a_batch


@pytest.mark.parametrize("kind", ["thread", "process", "daemon"])
async def test_a_worker_that_is_left_with_a_thread_a_child_or_a_daemon_is_replaced(zygotes: Zygotes, kind: str) -> None:
    def leaves_something(x, kind=kind):
        import subprocess
        import threading
        import time

        if kind == "thread":
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        elif kind == "process":
            subprocess.Popen(["sleep", "1000"])
        else:
            subprocess.run(["setsid", "--fork", "sleep", "1000"], check=True)
        return x

    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, batches_of([1]), scalar_arrow(leaves_something))
        assert (reply.error, reply.ending) == (None, FrameKind.RETIRED)
        await until(pool, lambda: pool.idle == 1)
        assert (await exchange(pool, batches_of([1]))).ending is FrameKind.DONE


async def test_a_worker_sees_no_descriptor_and_no_variable_of_its_makers(zygotes: Zygotes, monkeypatch) -> None:
    async with running_pool(zygotes, workers=4) as pool:
        reply = await exchange(pool, batches_of([1]), by_value(look_around, StringType()))
    seen = json.loads(reply.table.column(0)[0].as_py())
    # stdin, stdout, stderr, its socket, the lifeline that ends it with the supervisor, the pipe on which it shows its
    # stack, and the one that lists the descriptors
    assert seen["descriptors"] == 7
    assert not [name for name, _ in seen["environment"] if name.startswith("UPDRAFT")]


async def test_the_time_zone_of_a_command_holds_for_its_exchange_only(zygotes: Zygotes) -> None:
    def zone(x):
        import time

        import pyarrow as pa

        return pa.array([time.strftime("%H", time.localtime(0))])

    async with running_pool(zygotes) as pool:
        hours = [
            (await exchange(pool, batches_of([1]), scalar_arrow(zone, StringType(), environment=environment)))
            .table.column(0)[0]
            .as_py()
            for environment in ({"TZ": "UTC"}, {"TZ": "Asia/Tokyo"}, {"TZ": "UTC"})
        ]
    assert hours == ["00", "09", "00"]


@pytest.mark.skipif(minor_version(pyspark.__version__) < (4, 1), reason="PySpark does that since 4.1")
async def test_each_exchange_of_a_worker_shows_where_it_is_now_and_then(zygotes: Zygotes) -> None:
    lines: list[str] = []
    shown = asyncio.Event()

    def take(output: WorkerOutput) -> None:
        lines.append(output.line)
        if "in dawdles" in output.line:
            shown.set()

    def dawdles(x: pa.Array) -> pa.Array:
        # It sleeps until its exchange is cancelled.
        time.sleep(1000)
        return x

    command = scalar_arrow(dawdles, environment={"PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS": "1"})
    quick = scalar_arrow(lambda x: x, environment={"PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS": "1"})
    async with running_pool(zygotes, on_output=take) as pool:
        assert (await exchange(pool, batches_of([1]), quick)).error is None
        running = asyncio.ensure_future(exchange(pool, batches_of([1]), command))
        await asyncio.wait_for(shown.wait(), 20)
        running.cancel()
        await asyncio.wait({running})
