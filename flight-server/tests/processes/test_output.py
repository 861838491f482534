# SPDX-License-Identifier: Apache-2.0
"""Output of functions as the pool passes it on."""

from pool_driver import (
    Zygotes,
    batches_of,
    numbers,
    receive_reply,
    requests,
    running_pool,
    send_command,
    send_requests,
)
from session_commands import scalar_arrow

from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput


async def test_what_a_function_prints_comes_with_its_exchange(zygotes: Zygotes) -> None:
    lines: list[WorkerOutput] = []

    def talks(x):
        import sys

        sys.stdout.write(f"hello {x[0]}\n")
        sys.stderr.write("error\n")
        return x

    async with running_pool(zygotes, on_output=lines.append) as pool:
        lease = await pool.lease(None)
        lease.log_context["task"] = "7"
        await send_command(lease, numbers(0).schema, scalar_arrow(talks))
        await send_requests(lease, requests(batches_of([1])))
        await receive_reply(lease)
        lease.release(LeaseOutcome.CLEAN)
    assert [(line.line, line.context, line.worker) for line in lines] == [
        ("hello 0", {"task": "7"}, lease.worker),
        ("error", {"task": "7"}, lease.worker),
    ]


async def test_a_function_that_prints_without_end_is_not_blocked(zygotes: Zygotes) -> None:
    lines: list[WorkerOutput] = []
    drops: list[DroppedOutput] = []

    def floods(x):
        import sys

        for _ in range(20_000):
            sys.stdout.write("y" * 999 + "\n")
        return x

    async with running_pool(zygotes, on_output=lines.append, on_drop=drops.append, output_lines_per_second=100) as pool:
        lease = await pool.lease(None)
        lease.log_context["task"] = "7"
        await send_command(lease, numbers(0).schema, scalar_arrow(floods))
        await send_requests(lease, requests(batches_of([1])))
        reply = await receive_reply(lease)
        lease.release(LeaseOutcome.CLEAN)
    assert reply.error is None
    # The burst passes at once; the rest of the budget comes with time.
    assert 200 <= len(lines) < 20_000
    assert sum(drop.lines for drop in drops) == 20_000 - len(lines)
    assert {(drop.worker, drop.context["task"]) for drop in drops} == {(lease.worker, "7")}
