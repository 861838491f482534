# SPDX-License-Identifier: Apache-2.0
"""Nine tenants that take all they can get of a writer's quota, and a tenth that comes last."""

from contextlib import ExitStack

import pytest
from quota_arrivals import Arrivals

from updraft.errors import QuotaError
from updraft.service.tenants import Claims, own_room
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import Quota, QuotaLimits

GREEDY = [f"greedy-{number}" for number in range(9)]
QUOTA, OWN = 8000, 100


async def taken() -> Arrivals:
    """Return a quota of which nine tenants hold all they can get and wait for more."""
    arrivals = Arrivals(QUOTA, own_bytes=OWN)
    for number in range(20):
        for tenant in GREEDY:
            await arrivals.come(f"{tenant} {number}", 50, tenant)
    assert arrivals.quota.waiting
    return arrivals


async def test_a_tenth_tenant_finds_its_part_of_a_quota_that_nine_others_have_taken() -> None:
    arrivals = await taken()
    assert OWN <= QUOTA - arrivals.quota.held_bytes < 2 * OWN
    await arrivals.come("small", OWN, "tenth")
    assert arrivals.admitted[-1] == "small"


async def test_a_tenth_tenant_finds_its_part_although_everybody_has_long_waited_for_another() -> None:
    arrivals = await taken()
    await arrivals.come("large", OWN + 1, "eleventh")
    arrivals.now = 60.0
    await arrivals.come("small", OWN, "tenth")
    assert arrivals.admitted[-1] == "small"


async def test_a_tenant_alone_has_all_but_what_is_kept_for_nine_others() -> None:
    arrivals = Arrivals(QUOTA, own_bytes=OWN)
    for number in range(200):
        await arrivals.come(str(number), 50, "alone")
    assert arrivals.quota.held_bytes == QUOTA - 9 * OWN
    await arrivals.leave_in_turn()
    assert arrivals.is_empty()


async def test_a_shortage_is_what_is_missing_of_the_part_that_tenants_share() -> None:
    arrivals = Arrivals(QUOTA, own_bytes=OWN)
    missing: list[int] = []
    arrivals.quota.on_shortage = missing.append
    await arrivals.come("first", QUOTA - 9 * OWN, "a")
    await arrivals.come("second", 30, "a")
    assert missing[-1] == 30


async def test_a_batch_of_the_whole_quota_is_let_in_when_nothing_is_held() -> None:
    arrivals = Arrivals(QUOTA, own_bytes=OWN)
    await arrivals.come("first", 10, "a")
    await arrivals.come("whole", QUOTA, "a")
    assert arrivals.admitted == ["first"]
    await arrivals.leave("first")
    assert arrivals.admitted == ["first", "whole"]


async def test_only_tenants_with_their_share_owe_room_and_only_to_those_that_have_less_and_wait() -> None:
    arrivals = await taken()
    assert not any(arrivals.quota.is_owed_to_others(tenant) for tenant in GREEDY)
    await arrivals.come("large", QUOTA // 20, "tenth")
    assert all(arrivals.quota.is_owed_to_others(tenant) for tenant in GREEDY)
    assert not arrivals.quota.is_owed_to_others("tenth")
    while "large" not in arrivals.admitted:
        await arrivals.leave(next(iter(arrivals.held)))
    assert not any(arrivals.quota.is_owed_to_others(tenant) for tenant in GREEDY)


async def test_memory_that_a_file_keeps_until_it_ends_leaves_others_their_parts() -> None:
    quota = Quota(QuotaLimits(quota_bytes=QUOTA, own_bytes=OWN))
    quota.charge("greedy").resize(QUOTA - 10 * OWN)
    quota.check_room("greedy", OWN, "bloom filters")
    with pytest.raises(QuotaError, match="may be kept for other tenants"):
        quota.check_room("greedy", OWN + 1, "bloom filters")
    quota.check_room("tenth", OWN, "bloom filters")


def files_of(clock: list[float]) -> OpenFiles:
    files = OpenFiles(Quota(QuotaLimits(quota_bytes=QUOTA)), max_open_files=160)
    files._claims = Claims(lambda: clock[0])
    return files


def opens(files: OpenFiles, tenant: str, stack: ExitStack) -> bool:
    try:
        stack.enter_context(files.place(tenant))
    except QuotaError:
        return False
    return True


async def test_a_tenth_tenant_finds_places_among_the_files_that_nine_others_keep_open() -> None:
    files = files_of([0.0])
    with ExitStack() as stack:
        for tenant in GREEDY:
            while opens(files, tenant, stack):
                pass
        for _ in range(own_room(160)):
            stack.enter_context(files.place("tenth"))
        with pytest.raises(QuotaError, match="maximum of this writer"):
            files.place("tenth").__enter__()


async def test_an_idle_file_gives_way_only_beyond_its_tenants_share_and_once_for_each_tenant_that_waits() -> None:
    clock = [0.0]
    files = files_of(clock)
    with ExitStack() as stack:
        places = [stack.enter_context(files.place("greedy")) for _ in range(142)]
        assert not files.must_give_way(places[0]), "nobody waits"
        few = [stack.enter_context(files.place("tenth")) for _ in range(own_room(160))]
        with pytest.raises(QuotaError, match="kept for tenants that have few"):
            files.place("tenth").__enter__()
        assert not files.must_give_way(few[0])
        assert [files.must_give_way(place) for place in places[:3]] == [True, False, False]
        clock[0] = 60.0
        assert not files.must_give_way(places[3]), "nobody waits any more"
