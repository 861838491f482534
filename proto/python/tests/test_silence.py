# SPDX-License-Identifier: Apache-2.0
import pytest

from updraft.service.silence import Silence, seconds_between_looks


def looks(silence: Silence, *, signs: int, owed: bool, count: int) -> list[bool]:
    return [silence.is_too_long(signs, owed=owed) for _ in range(count)]


def test_a_side_that_owes_a_sign_and_gives_none_is_silent_once_the_limit_has_passed() -> None:
    assert looks(Silence(40, 10), signs=7, owed=True, count=5) == [False, False, False, False, True]


def test_every_sign_starts_the_time_again() -> None:
    silence = Silence(40, 10)
    looks(silence, signs=7, owed=True, count=4)
    assert looks(silence, signs=8, owed=True, count=5) == [False, False, False, False, True]


def test_time_in_which_nothing_is_owed_does_not_count() -> None:
    silence = Silence(40, 10)
    assert not any(looks(silence, signs=7, owed=False, count=50))
    looks(silence, signs=7, owed=True, count=4)
    looks(silence, signs=7, owed=False, count=1)
    assert looks(silence, signs=7, owed=True, count=5) == [False, False, False, False, True]


def test_no_limit_is_never_reached() -> None:
    assert not any(looks(Silence(0, 10), signs=7, owed=True, count=50))


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [((600, 3600), 30.0), ((600, 0), 30.0), ((0, 0), 30.0), ((2, 600), 0.5), ((0, 2), 0.5)],
    ids=["long", "one", "none", "first", "second"],
)
def test_looks_are_frequent_enough_for_the_shortest_limit(limits: tuple[float, ...], seconds: float) -> None:
    assert seconds_between_looks(*limits) == seconds
