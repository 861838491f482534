# SPDX-License-Identifier: Apache-2.0
"""Expected length of an owner's absence."""

from updraft_server.pool.absences import Absences
from updraft_server.pool.leases import Owner

A, *OTHERS = (Owner("tenant", f"app-{number}", "") for number in range(1100))


def test_an_owner_stays_away_as_long_as_last_time_or_longer() -> None:
    absences = Absences()
    absences.began(A)
    assert absences.expected(A) == float("inf"), "an owner that has never come back may never do so"
    for other in OTHERS[:5]:
        absences.began(other)
    absences.ended(A)
    assert absences.expected(A) == 5
    absences.began(A)
    assert absences.expected(A) == 5
    for other in OTHERS[:7]:
        absences.began(other)
    assert absences.expected(A) == 7
    # A waiting request asks several times.
    for _ in range(3):
        absences.ended(A)
    assert absences.expected(A) == 7


def test_an_owner_whose_place_nobody_took_is_not_away() -> None:
    absences = Absences()
    absences.ended(A)
    assert absences.expected(A) == 0


def test_the_owners_that_left_first_are_forgotten() -> None:
    absences = Absences()
    for owner in (A, *OTHERS[:1024]):
        absences.began(owner)
    assert [absences.expected(owner) for owner in (A, OTHERS[0])] == [0, float("inf")]
