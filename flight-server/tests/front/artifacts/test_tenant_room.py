# SPDX-License-Identifier: Apache-2.0
"""Room that tenants may take from each other in a store, with a clock that the test moves."""

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from updraft.errors import PoolFullError
from updraft.service.tenants import Claims
from updraft_server.front.artifacts.needs import ArtifactKey, Form
from updraft_server.front.artifacts.originals import original
from updraft_server.front.artifacts.store import ArtifactStore, Held
from updraft_server.front.artifacts.stored import StoredArtifact
from updraft_server.pool.leases import Owner

MIB = 1024 * 1024


class Clock:
    """Clock in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> ArtifactStore:
    """Return a store of 8 MiB."""
    store = ArtifactStore(tmp_path / "store", limit_bytes=8 * MIB, retry_after_milliseconds=500)
    store._tenants._clock = clock
    store._tenants._claims = Claims(clock)
    return store


def key(number: int, size_bytes: int = MIB) -> ArtifactKey:
    return ArtifactKey(number.to_bytes(32, "big"), size_bytes, Form.FILE)


def keep(store: ArtifactStore, held: Held, artifact: StoredArtifact) -> None:
    """Store an artifact as the collector does after its arrival."""
    with store.arriving(held, artifact) as room:
        room.grow_to(artifact.key.size_bytes)
        path = store.stored_path(held)
        path.write_bytes(b"")
        room.keep(path, original(artifact.key, path))


def hold(store: ArtifactStore, stack: ExitStack, tenant: str, application: str, *numbers: int) -> Held:
    """Open an exchange of this tenant that needs these artifacts of 1 MiB each."""
    owner = Owner(tenant, application, "")
    held = stack.enter_context(store.holding(owner, frozenset(map(key, numbers)), tenant))
    for artifact in held.artifacts.values():
        if artifact.path is None:
            keep(store, held, artifact)
    return held


def kept(store: ArtifactStore, tenant: str, application: str) -> int:
    """Return how many artifacts an owner has in the store."""
    owned = store._owned.get(store._digest(*Owner(tenant, application, "")))
    return 0 if owned is None else sum(artifact.path is not None for artifact in owned.artifacts.values())


async def test_a_tenant_alone_may_fill_the_store(store: ArtifactStore) -> None:
    with ExitStack() as stack:
        hold(store, stack, "greedy", "g", *range(8))
        assert store.used_bytes == 8 * MIB


async def test_who_was_refused_finds_what_others_gave_back(store: ArtifactStore, clock: Clock) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(ExitStack()) for _ in range(2))
        hold(store, first, "greedy", "g1", *range(4))
        hold(store, second, "greedy", "g2", *range(4, 8))
        with pytest.raises(PoolFullError, match="running exchanges hold"):
            hold(store, stack, "modest", "m", 10)
        first.close()
        with pytest.raises(PoolFullError, match="other tenants wait for room"):
            hold(store, stack, "greedy", "g3", 20)
        hold(store, stack, "modest", "m", 10)
        assert kept(store, "modest", "m") == 1
        clock.now += 60
        hold(store, stack, "greedy", "g3", 20)


async def test_nobody_evicts_what_a_tenant_with_less_uses(store: ArtifactStore, clock: Clock) -> None:
    with ExitStack() as stack:
        with ExitStack() as exchange:
            hold(store, exchange, "modest", "m", 100, 101)
        hold(store, stack, "greedy", "g1", *range(6))
        with pytest.raises(PoolFullError, match="holds more of it than others"):
            hold(store, stack, "greedy", "g2", 50)
        assert kept(store, "modest", "m") == 2
        # The tenant's claim has expired.
        clock.now += 120
        hold(store, stack, "greedy", "g3", 51)
        assert kept(store, "modest", "m") == 1


async def test_tenants_that_have_ended_long_ago_have_no_share(store: ArtifactStore, clock: Clock) -> None:
    with ExitStack() as stack:
        for number in range(20):
            with ExitStack() as exchange:
                hold(store, exchange, f"ended-{number}", "app")
        clock.now += 120
        first = stack.enter_context(ExitStack())
        hold(store, first, "greedy", "g1", *range(3))
        hold(store, stack, "greedy", "g2", *range(3, 8))
        # 2 MiB are less than a half of the store, and more than a twentieth.
        with pytest.raises(PoolFullError, match="running exchanges hold"):
            hold(store, stack, "modest", "m", 10, 11)
        first.close()
        with pytest.raises(PoolFullError, match="other tenants wait for room"):
            hold(store, stack, "greedy", "g3", 20)
        hold(store, stack, "modest", "m", 10, 11)


async def test_room_that_is_still_on_the_disk_is_waited_for(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, may_remove = threading.Event(), threading.Event()

    def remove(*_: Path) -> None:
        removing.set()
        assert may_remove.wait(60)

    with ExitStack() as exchange:
        hold(store, exchange, "one", "a", *range(8))
    monkeypatch.setattr("updraft_server.front.artifacts.store.remove", remove)
    with ExitStack() as stack:
        hold(store, stack, "one", "a", 8)
        waiting = asyncio.create_task(store.vacated())
        await asyncio.to_thread(removing.wait, 60)
        assert not waiting.done()
        may_remove.set()
        await asyncio.wait_for(waiting, 60)


async def test_who_brings_many_owners_loses_its_own(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft_server.front.artifacts.store._MOST_OWNERS", 4)
    with ExitStack() as exchange:
        hold(store, exchange, "modest", "m", 100)
    for number in range(8):
        with ExitStack() as exchange:
            hold(store, exchange, "greedy", f"g{number}", 0)
    assert kept(store, "modest", "m") == 1


async def test_who_lays_out_many_sets_loses_its_own(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft_server.front.artifacts.store._MOST_IDLE_FILE_SETS", 4)

    def lay_out(tenant: str, name: str) -> Held:
        with ExitStack() as exchange:
            held = hold(store, exchange, tenant, tenant, 1)
            store.file_set(held, name, held.artifacts).path.mkdir()
        return held

    modest = lay_out("modest", "m")
    for number in range(8):
        greedy = lay_out("greedy", f"g{number}")
    assert set(modest.owned.file_sets) == {"m"}
    assert set(greedy.owned.file_sets) == {"g5", "g6", "g7"}
