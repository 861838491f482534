# SPDX-License-Identifier: Apache-2.0
"""Per-tenant caps at the queue and on admission to a front."""

import asyncio
import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import pytest
from admission_arrivals import TASK, Arrivals, PoolOf, acquire, admission, settled
from artifact_clients import artifact, fixture, parts
from fake_pool import FakePool
from flight_messages import all_replies, batch, command_request, echo_command, reply_metadata
from front_calls import Gate, until
from front_harness import Running, RunningFront

from updraft.errors import LimitError, PoolFullError
from updraft.service.tenants import Caps, TenantCaps
from updraft.v1.exchange_pb2 import ErrorKind, Owner, TaskIdentity
from updraft_server.front.queue.overtaking import MOST_OVERTAKING
from updraft_server.pool import leases
from updraft_server.pool.bindings import Binding
from updraft_server.pool.leases import LeaseOutcome

MIB = 1024 * 1024


def of_a(**caps: int) -> Caps:
    return Caps(lambda tenant: TenantCaps(**caps) if tenant == "a" else TenantCaps())


async def test_a_tenant_gets_no_worker_beyond_its_cap_and_holds_nobody_up(pool_of: PoolOf) -> None:
    arrivals = Arrivals(admission(pool_of(3), caps=of_a(max_workers=1)))
    for name in ("a1", "a2", "b1", "b2"):
        await arrivals.come(name, tenant=name[0])
    assert arrivals.granted == ["a1", "b1", "b2"]
    await arrivals.leave("b1")
    assert arrivals.granted == ["a1", "b1", "b2"]
    await arrivals.leave("a1")
    assert arrivals.granted == ["a1", "b1", "b2", "a2"]


async def test_no_more_workers_than_the_cap_compute_with_or_without_an_exchange(pool_of: PoolOf) -> None:
    @dataclass
    class Rested:
        id: str
        tenant: str = "a"
        usage: None = None
        computes_at_rest: bool = False

    pool = pool_of(3)
    queue = admission(pool, caps=of_a(max_workers=2))
    for name in ("first", "second"):
        pool.resting.begin(Rested(name))
    grant = await acquire(queue, "a", None)
    assert pool.stopped == [], "code of the operator computes only in its exchange"
    grant.release(LeaseOutcome.CLEAN)
    grant = await acquire(queue, "a", None, binding=Binding(leases.Owner("a", "application", "")))
    assert [worker.id for worker in pool.stopped] == ["first"]
    grant.release(LeaseOutcome.CLEAN)
    await acquire(queue, "b", None, binding=Binding(leases.Owner("b", "application", "")))
    assert len(pool.stopped) == 1


async def test_a_task_that_holds_a_worker_is_not_stopped_by_the_cap(pool_of: PoolOf) -> None:
    """The exchange may wait for results of a sibling."""
    arrivals = Arrivals(admission(pool_of(1), caps=of_a(max_workers=1)))
    await arrivals.come("first", tenant="a", task=TASK)
    await arrivals.come("sibling", tenant="a", task=TASK)
    assert arrivals.granted == ["first", "sibling"]


async def test_a_cap_that_is_raised_counts_from_the_next_exchange(pool_of: PoolOf) -> None:
    caps = {"a": 1}
    arrivals = Arrivals(admission(pool_of(2), caps=Caps(lambda tenant: TenantCaps(max_workers=caps.get(tenant)))))
    for name in ("a1", "a2"):
        await arrivals.come(name, tenant="a")
    caps["a"] = 2
    await arrivals.come("a3", tenant="a")
    assert sorted(arrivals.granted) == ["a1", "a3"]
    caps["a"] = 3
    await arrivals.leave("a1")
    await arrivals.leave("a3")
    assert sorted(arrivals.granted) == ["a1", "a2", "a3"]


async def test_no_more_wait_than_the_cap_says(pool_of: PoolOf) -> None:
    caps = of_a(max_waiting=2)
    queue = admission(pool_of(1), caps=caps)
    running = await acquire(queue, "b", None)
    with ExitStack() as places:
        for _ in range(2):
            places.enter_context(queue.place("a", None))
        with pytest.raises(PoolFullError, match=r"'a' has 2 waiting exchanges .* raise max_waiting") as full:
            places.enter_context(queue.place("a", None))
        assert full.value.retry_after_milliseconds == 500
        places.enter_context(queue.place("b", None))
    assert caps.refusals["max_waiting"] == 1
    running.release(LeaseOutcome.CLEAN)


async def test_who_finds_an_idle_worker_does_not_wait(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), caps=of_a(max_waiting=1))
    with ExitStack() as places:
        for _ in range(2):
            places.enter_context(queue.place("a", None))
        with pytest.raises(PoolFullError):
            places.enter_context(queue.place("a", None))


async def test_what_waits_takes_no_more_memory_than_the_cap_says(pool_of: PoolOf) -> None:
    queue = admission(pool_of(1), caps=of_a(max_queue_bytes=50))
    with queue.place("a", None, held_bytes=30):
        with pytest.raises(PoolFullError, match="has 30 bytes of waiting exchanges and wants 21 more, its cap is 50"):
            queue.place("a", None, held_bytes=21).__enter__()
        with queue.place("a", None, held_bytes=20), queue.place("b", None, held_bytes=50):
            pass
    with pytest.raises(LimitError, match="max_queue_bytes"):
        queue.place("a", None, held_bytes=51).__enter__()


async def test_nobody_passes_for_a_task_of_another_tenant(pool_of: PoolOf) -> None:
    """Application ids can be guessed."""
    arrivals = Arrivals(admission(pool_of(1)))
    await arrivals.come("first", tenant="a", task=TASK)
    await arrivals.come("stranger", tenant="c")
    await arrivals.come("thief", tenant="b", task=TASK)
    assert arrivals.granted == ["first"]
    await arrivals.leave("first")
    assert arrivals.granted == ["first", "stranger"]


async def test_a_task_does_not_overtake_for_ever(pool_of: PoolOf) -> None:
    """A client may name the same task in all of its exchanges."""
    queue = admission(pool_of(1))
    held = await acquire(queue, "a", TASK)
    waiting = asyncio.create_task(acquire(queue, "b", None))
    await settled()
    for _ in range(MOST_OVERTAKING):
        (await acquire(queue, "a", TASK)).release(LeaseOutcome.CLEAN)
    late = asyncio.create_task(acquire(queue, "a", TASK))
    await settled()
    assert not late.done()
    held.release(LeaseOutcome.CLEAN)
    await settled()
    assert waiting.done()
    assert not late.done()
    (await waiting).release(LeaseOutcome.CLEAN)
    (await late).release(LeaseOutcome.CLEAN)


async def test_a_full_queue_has_a_place_for_who_has_used_little(
    pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.queue.turns.TURN_SECONDS", 0.0)
    queue = admission(pool_of(1), queue_limit=2)
    arrivals = Arrivals(queue)
    monkeypatch.setattr(queue._turns, "has_used_a_turn", lambda tenant: tenant != "quiet")
    for name in ("running", "b", "c"):
        await arrivals.come(name)
    await arrivals.come("d")
    with pytest.raises(PoolFullError):
        await asyncio.wait_for(arrivals.tasks["d"], 60)
    await arrivals.come("quiet")
    with pytest.raises(PoolFullError):
        await asyncio.wait_for(arrivals.tasks["c"], 60)
    await arrivals.serve_all()
    assert sorted(arrivals.granted) == ["b", "quiet", "running"]


def is_waited_for(front: RunningFront, waiting: int) -> bool:
    """Return whether a worker is busy and exactly this many exchanges wait for it."""
    return front.front.admission.waiting == waiting and bool(front.pool.busy)


@pytest.fixture
def identities(tmp_path: Path) -> Path:
    """Return a file of two tenants whose token is their name; the first may queue two exchanges and store 2 MiB."""
    path = tmp_path / "identities.toml"
    path.write_text(
        "".join(
            f'[[identity]]\nname = "{name}"\ntenant = "{name}"\nscopes = ["call", "session"]\n'
            f'token_sha256 = ["{hashlib.sha256(name.encode()).hexdigest()}"]\n'
            for name in "ab"
        )
        + f'[[tenant]]\nname = "a"\nmax_waiting = 1\nmax_artifact_bytes = {2 * MIB}\n'
    )
    return path


async def test_a_front_refuses_by_the_caps_of_its_file_and_counts(running_front: Running, identities: Path) -> None:
    gate = Gate()
    async with running_front(FakePool(script=gate.script), identities_file=identities) as front:
        codes = {}
        calls = []
        for name, waiting in (("b1", 0), ("a1", 1), ("a2", 1), ("b2", 2)):
            call = front.exchange(metadata=(("authorization", f"Bearer {name[0]}"),))
            # Each exchange is of a task of its own, so none overtakes.
            owner = Owner(application_id=name)
            await call.write(command_request(echo_command(task=TaskIdentity(owner=owner))))
            calls.append(call)
            if name == "a2":
                replies, error = await all_replies(call)
                assert error is not None
                codes[name] = error.code()
                assert "the tenant 'a' has 1 waiting exchanges" in str(error.details())
                assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_POOL_FULL
            else:
                await call.write(batch(1))
                await until(partial(is_waited_for, front, waiting))
        assert codes == {"a2": grpc.StatusCode.RESOURCE_EXHAUSTED}
        refused = front.front.metrics.registry.get_sample_value
        assert refused("updraft_tenant_cap_refusals_total", {"cap": "max_waiting"}) == 1
        for call in calls:
            call.cancel()
        gate.opened.set()


async def test_the_artifacts_of_a_tenant_stay_within_its_cap(
    running_front: Running, tmp_path: Path, identities: Path
) -> None:
    async with fixture(running_front, tmp_path, identities_file=identities, artifact_store_bytes=8 * MIB) as pool:
        await pool.give(b"0" * MIB, token="b")
        for number in range(1, 4):
            await pool.give(bytes([number]) * MIB, token="a")
        # The tenant's own least recently used artifact was removed; those of others stayed.
        assert pool.used_bytes == 3 * MIB
        assert await pool.give(b"0" * MIB, token="b") == set()
        assert await pool.give(bytes([3]) * MIB, token="a") == set()
        holding = await pool.client(artifact(bytes(2 * MIB), broadcast_id=1), token="a")
        await holding.wanted()
        await holding.send(*parts(bytes(2 * MIB), MIB))
        assert await holding.wanted() == set()
        more = await pool.client(artifact(b"4" * MIB, broadcast_id=1), owner=Owner(application_id="x"), token="a")
        refusal = await more.refusal()
        assert refusal.error.kind == ErrorKind.ERROR_KIND_POOL_FULL
        assert "the tenant 'a' has 2097152 bytes of artifacts" in refusal.error.message
        large = await pool.client(artifact(bytes(3 * MIB), broadcast_id=1), token="a")
        refusal = await large.refusal()
        assert refusal.error.kind == ErrorKind.ERROR_KIND_LIMIT
        await holding.end()
