# SPDX-License-Identifier: Apache-2.0
"""Every planted bug is found by the seed that README.md names, and by no invariant once it is gone."""

from __future__ import annotations

import pytest

from tests.simulation.planted import BUGS, planted, seeds_in_readme
from tests.simulation.simulate import simulate

_SEEDS = seeds_in_readme()


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    with planted(name):
        assert simulate(_SEEDS[name]).violation
    assert not simulate(_SEEDS[name]).violation


def test_there_are_more_than_twenty() -> None:
    assert len(BUGS) > 20
