# SPDX-License-Identifier: Apache-2.0
"""The seed in README.md finds each planted bug in the same way, and finds nothing without the bug."""

from __future__ import annotations

import re

import pytest

from tests.simulation.planted import BUGS, found_in_readme, planted
from tests.simulation.simulate import simulate

_FOUND = found_in_readme()


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    seed, found = _FOUND[name]
    with planted(name):
        assert _kind(simulate(seed).violation) == _kind(found)
    assert not simulate(seed).violation


def test_no_planted_bug_is_found_by_an_exception_of_python() -> None:
    assert not [found for _, found in _FOUND.values() if re.search(r"\b[A-Z]\w*(Error|Exception)\b", found)]


def _kind(violation: str) -> str:
    """Return the text of a violation without its times, names and counts."""
    return re.sub(r"[\d.]+", "#", violation)


def test_there_are_more_than_twenty() -> None:
    assert len(BUGS) > 20
