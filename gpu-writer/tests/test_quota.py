# SPDX-License-Identifier: Apache-2.0
import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quota_arrivals import Arrivals, settled

from updraft.errors import QuotaError
from updraft_writer.quota import Quota, QuotaLimits


async def test_the_third_of_50_and_50_and_50_waits_until_one_ends_when_the_quota_is_100() -> None:
    arrivals = Arrivals(100)
    for name in "abc":
        await arrivals.come(name, 50)
    assert arrivals.admitted == ["a", "b"]
    await arrivals.leave("b")
    assert arrivals.admitted == ["a", "b", "c"]


async def test_a_batch_larger_than_the_quota_is_let_in_alone() -> None:
    arrivals = Arrivals(100)
    await arrivals.come("small", 1)
    await arrivals.come("huge", 500)
    assert arrivals.admitted == ["small"]
    await arrivals.leave("small")
    assert arrivals.admitted == ["small", "huge"]
    await arrivals.come("after", 1)
    assert "after" not in arrivals.admitted
    await arrivals.leave("huge")
    assert "after" in arrivals.admitted


async def test_batches_that_are_all_too_large_are_let_in_one_at_a_time_in_order() -> None:
    arrivals = Arrivals(100)
    for name in "abcd":
        await arrivals.come(name, 101)
    for count, name in enumerate("abcd", start=1):
        assert arrivals.admitted == list("abcd"[:count])
        await arrivals.leave(name)
    assert arrivals.is_empty()


async def test_a_large_batch_is_not_starved_behind_a_thousand_small_ones() -> None:
    arrivals = Arrivals(100)
    await arrivals.come("0", 20)
    await arrivals.come("large", 90)
    for index in range(1, 1000):
        await arrivals.come(str(index), 20)
    while "large" not in arrivals.admitted:
        arrivals.now += 0.1
        await arrivals.leave(next(iter(arrivals.held)))
    # One leaves every 0.1 seconds, so 50 overtake it in 5 seconds, besides the 5 that were admitted when it came.
    assert len(arrivals.admitted) <= 60
    await arrivals.leave_in_turn()
    assert len(arrivals.admitted) == 1001
    assert arrivals.is_empty()


async def test_who_does_not_fit_may_be_overtaken_for_a_while_and_then_everybody_waits() -> None:
    arrivals = Arrivals(100)
    await arrivals.come("first", 60)
    await arrivals.come("large", 90)
    await arrivals.come("early", 20)
    assert arrivals.admitted == ["first", "early"]
    arrivals.now = 5.1
    await arrivals.come("late", 20)
    await arrivals.leave("first")
    assert "late" not in arrivals.admitted
    await arrivals.leave("early")
    assert arrivals.admitted[-1] == "large"


async def test_how_long_a_batch_may_be_overtaken_counts_from_its_arrival() -> None:
    arrivals = Arrivals(100)
    arrivals.now = 100.0
    await arrivals.come("first", 60)
    await arrivals.come("large", 90)
    arrivals.now = 104.0
    await arrivals.come("early", 20)
    assert arrivals.admitted == ["first", "early"]


async def test_a_thousand_small_batches_bring_the_counters_back_to_zero() -> None:
    arrivals = Arrivals(100)
    for index in range(1000):
        await arrivals.come(str(index), 1 + index % 7)
    await arrivals.leave_in_turn()
    assert sorted(arrivals.admitted, key=int) == [str(index) for index in range(1000)]
    assert arrivals.is_empty()


async def test_a_tenant_below_its_share_comes_before_one_that_has_borrowed() -> None:
    arrivals = Arrivals(100)
    for name in ("a1", "a2", "a3"):
        await arrivals.come(name, 50, "a")
    await arrivals.come("b1", 50, "b")
    assert arrivals.admitted == ["a1", "a2"]
    await arrivals.leave("a1")
    assert arrivals.admitted[-1] == "b1"


async def test_a_tenant_far_above_its_share_comes_after_one_below() -> None:
    arrivals = Arrivals(100)
    for name, wanted_bytes in (("a1", 80), ("a2", 20), ("a3", 20)):
        await arrivals.come(name, wanted_bytes, "a")
    await arrivals.come("b1", 20, "b")
    await arrivals.leave("a2")
    assert arrivals.admitted == ["a1", "a2", "b1"]


async def test_tenants_below_their_shares_come_in_the_order_of_arrival() -> None:
    arrivals = Arrivals(100)
    await arrivals.come("a1", 40, "a")
    await arrivals.come("b1", 20, "b")
    await arrivals.come("c", 40, "a")
    for name in ("a2", "b2"):
        await arrivals.come(name, 30, name[0])
    arrivals.held["c"].resize(5)
    await settled()
    assert arrivals.admitted == ["a1", "b1", "c", "a2"]


async def test_a_tenant_that_holds_nothing_any_more_takes_no_share() -> None:
    arrivals = Arrivals(100)
    await arrivals.come("gone", 10, "gone")
    await arrivals.leave("gone")
    await arrivals.come("a1", 40, "a")
    await arrivals.come("b1", 60, "b")
    for name in ("a2", "b2"):
        await arrivals.come(name, 30, name[0])
    arrivals.held["b1"].resize(20)
    await settled()
    assert arrivals.admitted[-2:] == ["b1", "a2"]


async def test_a_tenant_that_is_alone_may_use_the_whole_quota() -> None:
    arrivals = Arrivals(100)
    for index in range(10):
        await arrivals.come(str(index), 10, "alone")
    assert len(arrivals.admitted) == 10


async def test_a_greedy_tenant_does_not_keep_another_waiting_for_its_whole_queue() -> None:
    arrivals = Arrivals(100)
    for index in range(50):
        await arrivals.come(f"greedy {index}", 50, "greedy")
    arrivals.now = 60.0
    await arrivals.come("modest", 50, "modest")
    await arrivals.leave("greedy 0")
    assert "modest" in arrivals.admitted


async def test_a_batch_that_is_not_let_in_in_time_gets_a_typed_error_with_a_hint() -> None:
    arrivals = Arrivals(100, timeout_seconds=0.01)
    held = await arrivals.quota.acquire("t", 100)
    with pytest.raises(QuotaError, match=r"no room for 7 bytes .* 100 of the quota's 100 bytes are held") as refused:
        await arrivals.quota.acquire("t", 7)
    assert refused.value.retry_after_milliseconds > 0
    held.release()
    assert arrivals.is_empty()


async def test_who_gives_up_waiting_lets_those_behind_it_in() -> None:
    arrivals = Arrivals(100)
    await arrivals.come("first", 50)
    await arrivals.come("large", 100)
    arrivals.now = 6.0
    await arrivals.come("small", 10)
    assert arrivals.admitted == ["first"]
    arrivals.tasks["large"].cancel()
    await settled()
    assert arrivals.admitted == ["first", "small"]
    await arrivals.leave_in_turn()
    assert arrivals.is_empty()


async def test_who_is_cancelled_as_it_is_let_in_holds_nothing() -> None:
    arrivals = Arrivals(100)
    await arrivals.come("first", 100)
    await arrivals.come("second", 100)
    arrivals.held.pop("first").release()
    arrivals.tasks["second"].cancel()
    await settled()
    assert arrivals.is_empty()


async def test_only_the_first_release_counts_and_a_released_reservation_cannot_grow() -> None:
    arrivals = Arrivals(100)
    one, other = await arrivals.quota.acquire("t", 30), await arrivals.quota.acquire("t", 40)
    for _ in range(3):
        one.release()
    one.resize(1000)
    assert one.held_bytes == 0
    assert arrivals.quota.held_bytes == other.held_bytes == 40
    other.release()
    assert arrivals.is_empty()


async def test_what_is_held_may_grow_beyond_the_quota_and_keeps_others_out_until_it_shrinks() -> None:
    arrivals = Arrivals(100)
    held = await arrivals.quota.acquire("t", 90)
    held.resize(150)
    await arrivals.come("next", 10)
    assert arrivals.admitted == []
    held.resize(20)
    await settled()
    assert arrivals.admitted == ["next"]


async def test_what_open_files_retain_never_shuts_everybody_out() -> None:
    arrivals = Arrivals(100)
    arrivals.quota.charge("t").resize(500)
    await arrivals.come("a", 10)
    await arrivals.come("b", 10)
    assert arrivals.admitted == ["a"]
    await arrivals.leave("a")
    assert arrivals.admitted == ["a", "b"]


async def test_reservations_become_one_without_letting_anybody_in_between() -> None:
    arrivals = Arrivals(100)
    one, other = await arrivals.quota.acquire("t", 60), await arrivals.quota.acquire("t", 40)
    await arrivals.come("waiting", 40)
    one.absorb(other)
    await settled()
    assert (arrivals.quota.held_bytes, arrivals.admitted) == (100, [])
    assert (one.held_bytes, other.held_bytes) == (100, 0)
    other.release()
    one.release()
    await settled()
    await arrivals.leave_in_turn()
    assert arrivals.is_empty()


async def test_what_absorbs_a_batch_keeps_out_batches_that_do_not_fit_beside_it() -> None:
    arrivals = Arrivals(100)
    file, batch = arrivals.quota.charge("t"), await arrivals.quota.acquire("t", 60)
    file.absorb(batch)
    await arrivals.come("large", 50)
    assert arrivals.admitted == []
    file.release()
    await settled()
    assert arrivals.admitted == ["large"]


async def test_absorbing_with_one_side_released_holds_nothing_twice() -> None:
    arrivals = Arrivals(100)
    held, released = await arrivals.quota.acquire("t", 60), await arrivals.quota.acquire("t", 40)
    released.release()
    held.absorb(released)
    assert (held.held_bytes, arrivals.quota.held_bytes, arrivals.quota.reservations) == (60, 60, 1)
    released.absorb(held)
    assert (held.held_bytes, released.held_bytes) == (0, 0)
    assert arrivals.is_empty()


async def test_nothing_is_handed_over_once_one_side_is_released() -> None:
    arrivals = Arrivals(100)
    held, released = await arrivals.quota.acquire("t", 60), arrivals.quota.charge("t")
    released.release()
    held.hand_over(released, 30)
    assert (held.held_bytes, released.held_bytes) == (60, 0)
    held.release()
    assert arrivals.is_empty()


async def test_a_sibling_holds_from_the_same_quota_for_the_same_tenant() -> None:
    quota = Quota(QuotaLimits(quota_bytes=100))
    held = await quota.acquire("t", 60)
    with held.sibling() as sibling:
        assert (sibling.tenant, sibling.held_bytes, sibling.admitted) == ("t", 0, False)
        sibling.resize(5)
        assert quota.held_bytes == 65
    assert (sibling.held_bytes, quota.held_bytes) == (0, 60)
    held.release()
    with pytest.raises(ValueError, match="released reservation"):
        held.sibling()


async def test_a_batch_larger_than_the_quota_is_let_in_once_the_last_batch_is_gone_even_an_empty_one() -> None:
    arrivals = Arrivals(100)
    await arrivals.come("shrunk", 50)
    arrivals.held["shrunk"].resize(0)
    await arrivals.come("huge", 150)
    assert arrivals.admitted == ["shrunk"]
    await arrivals.leave("shrunk")
    assert arrivals.admitted == ["shrunk", "huge"]


async def test_a_part_is_handed_over_without_letting_anybody_in_between() -> None:
    arrivals = Arrivals(100)
    one, other = await arrivals.quota.acquire("t", 100), arrivals.quota.charge("t")
    await arrivals.come("waiting", 1)
    one.hand_over(other, 30)
    assert (one.held_bytes, other.held_bytes) == (70, 30)
    one.hand_over(other, 1000)
    assert (one.held_bytes, other.held_bytes, arrivals.quota.held_bytes) == (0, 100, 100)
    await settled()
    assert arrivals.admitted == []
    one.release()
    other.release()
    await settled()
    await arrivals.leave_in_turn()
    assert arrivals.is_empty()


async def test_a_shortage_is_told_with_the_bytes_that_are_missing() -> None:
    arrivals = Arrivals(100)
    told: list[int] = []
    arrivals.quota.on_shortage = told.append
    await arrivals.come("a", 70)
    assert told == []
    await arrivals.come("b", 60)
    assert told == [30]
    await arrivals.come("c", 90)
    assert told == [30, 30]


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 140), st.sampled_from("abc"), st.sampled_from(["come", "leave", "cancel"]))
    ),
    seed=st.integers(0, 2**16),
)
def test_whatever_happens_the_quota_holds_and_everybody_is_served_or_gone(
    steps: list[tuple[int, str, str]], seed: int
) -> None:
    async def play() -> None:
        choose = random.Random(seed)
        arrivals = Arrivals(100)
        for index, (wanted_bytes, tenant, step) in enumerate(steps):
            arrivals.now += 1.0
            if step == "come":
                await arrivals.come(str(index), wanted_bytes, tenant)
            elif step == "leave" and arrivals.held:
                await arrivals.leave(choose.choice(list(arrivals.held)))
            elif step == "cancel" and arrivals.tasks:
                arrivals.tasks[choose.choice(list(arrivals.tasks))].cancel()
                await settled()
            assert arrivals.quota.held_bytes == sum(held.held_bytes for held in arrivals.held.values())
            assert arrivals.quota.held_bytes <= 100 or arrivals.quota.reservations == 1
        await arrivals.leave_in_turn()
        assert arrivals.is_empty()
        assert all(task.done() for task in arrivals.tasks.values())

    asyncio.run(play())


async def test_a_quota_counts_its_peak() -> None:
    quota = Quota(QuotaLimits(quota_bytes=10))
    assert quota.peak_bytes == 0
    (await quota.acquire("t", 7)).release()
    assert (quota.held_bytes, quota.peak_bytes) == (0, 7)
