# SPDX-License-Identifier: Apache-2.0
"""A worker belongs to its first owner, even if a faulty front later sends it another one."""

import pytest

from updraft.errors import InternalError
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.process import Ownership

REGISTERED = Assignment(function_name="echo")
A, B, ANONYMOUS = (Assignment(eval_type=100, owner=owner) for owner in (("t", "a", ""), ("t", "b", ""), ("t", "", "")))
OTHER_TENANT, OTHER_SESSION = (Assignment(owner=owner) for owner in (("u", "a", ""), ("t", "a", "s")))


@pytest.mark.parametrize("assignment", [REGISTERED, A])
def test_the_first_owner_may_come_again(assignment: Assignment) -> None:
    ownership = Ownership()
    for _ in range(3):
        ownership.take(assignment)
        assert ownership.is_lasting


@pytest.mark.parametrize(
    ("first", "second"),
    [(A, B), (A, REGISTERED), (REGISTERED, A), (A, OTHER_TENANT), (A, OTHER_SESSION), (ANONYMOUS, ANONYMOUS)],
)
def test_nobody_else_may(first: Assignment, second: Assignment) -> None:
    ownership = Ownership()
    ownership.take(first)
    with pytest.raises(InternalError, match="another owner"):
        ownership.take(second)
    if first is not ANONYMOUS:
        ownership.take(first)


@pytest.mark.parametrize("owner", [(), ("registered functions",), ("t", "a")])
def test_a_session_function_has_an_owner(owner: tuple[str, ...]) -> None:
    with pytest.raises(InternalError, match="without an owner"):
        Ownership().take(Assignment(owner=owner))


def test_who_names_no_application_comes_once() -> None:
    ownership = Ownership()
    ownership.take(ANONYMOUS)
    assert not ownership.is_lasting
