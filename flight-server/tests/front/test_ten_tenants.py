# SPDX-License-Identifier: Apache-2.0
"""Nine tenants that hold all workers of a pool without using them, and a tenth that comes last."""

import asyncio
import hashlib
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from admission_arrivals import Arrivals, PoolOf, admission
from fake_pool import FakePool
from flight_messages import all_replies, batch, command_request, echo_command, keep_alive, reply_metadata
from front_calls import until
from front_harness import Running, RunningFront
from looks import FAR_APART, Script, clocks_looked_at, looked_at, written

from updraft.errors import PoolFullError
from updraft.v1.exchange_pb2 import ErrorKind, Owner, ReplyMetadata, TaskIdentity
from updraft_server.front.limits.running_exchanges import _UNUSED_PER_USED, _UNUSED_WORKER_SECONDS, UnusedTime
from updraft_server.front.queue import admission as admission_module
from updraft_server.front.queue.turns import Turns
from updraft_server.ipc.frames import FrameKind

GREEDY = [f"greedy-{number}" for number in range(9)]
# After this time the next look gives their workers to others.
SECONDS = _UNUSED_WORKER_SECONDS + 1


def turns_of(at_work: dict[str, int], waiting: str, idle: int = 0) -> Turns[str]:
    turns: Turns[str] = Turns(idle=lambda: idle, most_workers={"capped": 0}.get, now=lambda: 0.0)
    for tenant, workers in at_work.items():
        turns.count(tenant, None, workers)
    for tenant in waiting.split():
        turns.add(tenant, None, tenant)
    return turns


@pytest.mark.parametrize(
    ("at_work", "waiting", "unused", "taken"),
    [
        ({"a": 4}, "b", "a a a a", 1),
        ({"a": 4}, "b c", "a a a a", 2),
        ({"a": 3, "b": 1}, "b", "a a a", 1),
        ({"a": 2, "b": 2}, "b", "a a", 0),
        ({"a": 4}, "a", "a a a a", 0),
        ({"a": 4}, "capped", "a a a a", 0),
        ({"a": 4}, "b", "", 0),
        # A tenant keeps its share even if it does not use it.
        ({"a": 1, "b": 3}, "c", "a", 0),
        # There are as many workers as two of the three tenants hold: they take turns.
        ({"a": 1, "b": 1}, "c", "a", 1),
        (dict.fromkeys(GREEDY, 1), "tenth", " ".join(GREEDY), 1),
    ],
)
def test_unused_workers_go_to_tenants_that_wait_with_less_than_their_share(
    at_work: dict[str, int], waiting: str, unused: str, taken: int
) -> None:
    assert len(turns_of(at_work, waiting).giving_way(unused.split())) == taken


def test_the_tenant_with_most_workers_gives_way_first() -> None:
    turns = turns_of({"a": 2, "b": 4}, "c")
    assert turns.giving_way(["a", "a", "b"]) == [2]


def test_nobody_gives_way_while_a_worker_is_idle() -> None:
    assert turns_of({"a": 4}, "b", idle=1).giving_way(["a"] * 4) == []


async def test_a_tenth_tenant_finds_a_place_in_a_queue_that_nine_others_fill(pool_of: PoolOf) -> None:
    queue = admission(pool_of(4), queue_limit=36)
    arrivals = Arrivals(queue)
    for number in range(20):
        for tenant in GREEDY:
            await arrivals.come(f"{tenant} {number}", tenant)
    assert queue.waiting == 36
    await arrivals.come("last", "tenth")
    for _ in GREEDY:
        await arrivals.leave(next(iter(arrivals.grants)))
    assert "last" in arrivals.granted, "each of the others had a turn"
    for task in arrivals.tasks.values():
        task.cancel()
    await asyncio.gather(*arrivals.tasks.values(), return_exceptions=True)


async def test_a_tenth_tenant_finds_memory_that_nine_others_fill(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1))
    with ExitStack() as stack:
        for tenant in GREEDY:
            for _ in range(20):
                with suppress(PoolFullError):
                    stack.enter_context(queue.place(tenant, None, held_bytes=2))
        assert queue.queue_bytes == 100
        stack.enter_context(queue.place("tenth", None, held_bytes=8))
        assert queue.queue_bytes <= 100


@pytest.mark.parametrize("workers", [2, 12])
async def test_each_of_ten_tenants_gets_a_worker_while_the_functions_of_others_never_end(
    pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(admission_module, "_STARVED_SECONDS", 0.05)
    arrivals = Arrivals(admission(pool_of(workers), tenants_with_workers=10))
    for number in range(workers):
        await arrivals.come(f"{GREEDY[0]} {number}", GREEDY[0])
    waiting = [arrivals.come(f"{tenant} {number}", tenant) for tenant in GREEDY for number in range(2)]
    for each in waiting:
        await each
    await arrivals.come("last", "tenth")
    assert len(arrivals.granted) == workers
    await until(lambda: "last" in arrivals.granted)
    assert sorted(arrivals.granted[workers:]) == sorted([*(f"{tenant} 0" for tenant in GREEDY[1:]), "last"])
    # Further tenants wait for a worker.
    await arrivals.come("more", "eleventh")
    await asyncio.sleep(0.2)
    assert "more" not in arrivals.granted
    for task in arrivals.tasks.values():
        task.cancel()
    await asyncio.gather(*arrivals.tasks.values(), return_exceptions=True)


async def test_no_tenant_gets_an_extra_worker_while_others_give_theirs_back(
    pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_module, "_STARVED_SECONDS", 0.05)
    pool = pool_of(1)
    arrivals = Arrivals(admission(pool, tenants_with_workers=10))
    await arrivals.come("first", "a")
    await arrivals.come("second", "b")
    await arrivals.leave("first")
    await asyncio.sleep(0.2)
    assert (arrivals.granted, pool.busy) == (["first", "second"], 1)
    await arrivals.leave("second")


@pytest.mark.parametrize(("identities", "admitted"), [(True, True), (False, False)])
async def test_only_proven_tenants_get_extra_workers(
    running_front: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, identities: bool, admitted: bool
) -> None:
    monkeypatch.setattr(admission_module, "_STARVED_SECONDS", 0.05)
    file = tmp_path / "identities"
    file.write_text(
        "".join(
            f'[[identity]]\nname = "{tenant}"\ntenant = "{tenant}"\nscopes = ["call"]\n'
            f'token_sha256 = ["{hashlib.sha256(tenant.encode()).hexdigest()}"]\n'
            for tenant in ("greedy", "tenth")
        )
    )
    file.chmod(0o600)
    settings = {"identities_file": file} if identities else {}
    async with running_front(FakePool(script=Script()), **FAR_APART, **settings) as front:
        greedy = await opens(front, "greedy")
        assert reply_metadata(await greedy.read()).HasField("admitted")
        tenth = await opens(front, "tenth")
        reading = asyncio.ensure_future(tenth.read())
        done, _ = await asyncio.wait({reading}, timeout=60 if admitted else 0.5)
        assert bool(done) is admitted
        for call in (greedy, tenth):
            call.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def opens(front: RunningFront, tenant: str, partition: int = 0) -> Any:
    call = front.exchange(metadata=(("authorization", f"Bearer {tenant}"),))
    task = TaskIdentity(owner=Owner(tenant=tenant), partition_id=partition)
    await call.write(command_request(echo_command(task=task)))
    return call


async def test_a_tenth_tenant_gets_a_worker_that_another_holds_by_keepalives_alone(running_front: Running) -> None:
    pool = FakePool(workers=12, script=Script())
    async with running_front(pool, **FAR_APART) as front:
        greedy = [await opens(front, tenant, partition) for tenant in GREEDY for partition in range(3)]
        await until(lambda: pool.busy == 12 and front.front.admission.waiting == len(greedy) - 12)
        tenth = await opens(front, "tenth")
        await until(lambda: front.front.admission.waiting == len(greedy) - 12 + 1)
        await written(front)
        endings = [asyncio.ensure_future(all_replies(call)) for call in greedy]
        for _ in range(4):
            for call in greedy:
                await call.write(keep_alive())
            clocks_looked_at(front, SECONDS / 4)
            await looked_at(front, 1)
        assert reply_metadata(await asyncio.wait_for(tenth.read(), 60)).HasField("admitted")
        ended, _ = await asyncio.wait(endings, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        replies, error = ended.pop().result()
        assert error is not None
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
        assert "gave the worker to another tenant that waited" in str(error.details())
        for call in [*greedy, tenth]:
            call.cancel()
        await asyncio.gather(*endings, return_exceptions=True)


@pytest.mark.parametrize(
    ("used", "share", "is_kept"),
    [("works", 0.05, False), ("works", 0.2, True), ("batch", 0.05, False), ("batch", 0.2, True)],
)
def test_a_client_keeps_its_worker_if_it_uses_it_for_more_than_a_tenth_of_the_time(
    used: str, share: float, is_kept: bool
) -> None:
    time, batches = UnusedTime(1.0), 0
    for second in range(10 * int(_UNUSED_WORKER_SECONDS)):
        in_use = int((second + 1) * share) > int(second * share)
        batches += in_use and used == "batch"
        time.looked(batches, waits_for_client=not (in_use and used == "works"))
    assert (time.seconds < _UNUSED_WORKER_SECONDS - _UNUSED_PER_USED) is is_kept


async def test_a_client_that_was_idle_for_long_keeps_its_worker_once_it_uses_it_again() -> None:
    time = UnusedTime(1.0)
    for _ in range(3600):
        time.looked(0, waits_for_client=True)
    time.looked(1, waits_for_client=True)
    assert time.seconds < _UNUSED_WORKER_SECONDS


async def test_batches_that_drip_do_not_keep_the_worker(running_front: Running) -> None:
    script = Script()
    pool = FakePool(script=script)
    async with running_front(pool, **FAR_APART) as front:
        greedy = await opens(front, "greedy")
        assert reply_metadata(await greedy.read()).HasField("admitted")
        await until(lambda: pool.busy == 1)
        tenth = await opens(front, "tenth")
        await until(lambda: front.front.admission.waiting == 1)
        await written(front)
        await script.got(FrameKind.COMMAND)
        for number in range(1, 8):
            await greedy.write(batch(number))
            await script.got(FrameKind.BATCH)
            script.replies.put_nowait(ReplyMetadata(sequence=number, consumed=number))
            assert reply_metadata(await greedy.read()).sequence == number
            await written(front)
            clocks_looked_at(front, 25.0)
            await looked_at(front, 1)
        assert reply_metadata(await asyncio.wait_for(tenth.read(), 60)).HasField("admitted")
        for call in (greedy, tenth):
            call.cancel()


@pytest.mark.parametrize("waits", ["nobody", "its own tenant"])
async def test_a_client_keeps_its_worker_while_no_other_tenant_waits(running_front: Running, waits: str) -> None:
    script = Script()
    pool = FakePool(script=script)
    async with running_front(pool, **FAR_APART) as front:
        calls = [await opens(front, "slow")]
        assert reply_metadata(await calls[0].read()).HasField("admitted")
        if waits != "nobody":
            calls.append(await opens(front, "slow", 1))
            await until(lambda: front.front.admission.waiting == 1)
        await written(front)
        clocks_looked_at(front, 2 * SECONDS)
        await looked_at(front, 1)
        await calls[0].write(batch(1))
        await until(lambda: script.received.qsize() > 1)
        for call in calls:
            call.cancel()
