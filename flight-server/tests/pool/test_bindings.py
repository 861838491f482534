# SPDX-License-Identifier: Apache-2.0
"""Owners that a worker may serve, and which worker makes room."""

import pytest

from updraft_server.pool.bindings import REGISTERED, Binding, Bound, best, superfluous, victim
from updraft_server.pool.leases import Owner

A, B, C = (Binding(Owner("tenant", application, "")) for application in "abc")
A_WITH_MODULES = A._replace(modules="x")
ANONYMOUS = Binding(Owner("tenant", "", ""))


@pytest.mark.parametrize("other", ["tenant", "application_id", "session_id"])
def test_no_part_of_an_owner_may_differ(other: str) -> None:
    assert A.owner is not None
    stranger = Binding(A.owner._replace(**{other: "another"}))
    assert not A.can_serve(stranger)
    assert not stranger.can_serve(A)


@pytest.mark.parametrize(
    ("has_served", "wanted", "may"),
    [
        (A, A, True),
        (A, A_WITH_MODULES, True),
        (A_WITH_MODULES, A_WITH_MODULES, True),
        (A_WITH_MODULES, A, False),
        (A_WITH_MODULES, A._replace(modules="y"), False),
        (REGISTERED, REGISTERED, True),
        (REGISTERED, A, False),
        (A, REGISTERED, False),
        (ANONYMOUS, ANONYMOUS, False),
        (ANONYMOUS, REGISTERED, False),
    ],
)
def test_a_worker_serves_whom_it_has_served_and_nothing_is_unloaded(
    has_served: Binding, wanted: Binding, *, may: bool
) -> None:
    assert has_served.can_serve(wanted) is may


def test_what_is_loaded_goes_before_what_is_recent_and_both_before_an_unused_worker() -> None:
    idle = [
        ("unused", Bound(None, 0)),
        ("loaded", Bound(A_WITH_MODULES, 1)),
        ("same owner", Bound(A, 2)),
        ("same owner later", Bound(A, 4)),
        ("other", Bound(B, 5)),
    ]
    for expected in ("loaded", "same owner later", "same owner", "unused", None):
        assert best(idle, A_WITH_MODULES) == expected
        idle = [each for each in idle if each[0] != expected]


def test_the_least_recently_used_worker_of_the_owner_with_most_goes() -> None:
    idle = [
        ("only one", Bound(B, 1)),
        ("newer", Bound(A, 5)),
        ("older", Bound(A_WITH_MODULES, 2)),
        ("registered", Bound(REGISTERED, 3)),
    ]
    gone = []
    while (chosen := victim(idle)) is not None:
        gone.append(chosen)
        idle = [each for each in idle if each[0] != chosen]
    assert gone == ["older", "only one", "registered", "newer"]


def test_of_too_many_spares_one_of_the_owner_with_most_goes_and_then_of_the_owner_who_stays_away_longest() -> None:
    spares = [
        ("soon back", Bound(A, 1)),
        ("long away", Bound(B, 2)),
        ("older of two", Bound(C, 3)),
        ("newer of two", Bound(C, 4)),
    ]
    absences = {A.owner: 2, B.owner: 30, C.owner: 1}
    for expected in ("older of two", "long away", "soon back", "newer of two"):
        assert superfluous(spares, absences.__getitem__) == expected
        spares = [each for each in spares if each[0] != expected]
