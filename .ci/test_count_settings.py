# SPDX-License-Identifier: Apache-2.0
"""Limit on the number of settings: each one costs its readers more than it costs its author."""

from __future__ import annotations

import sys

from tests.support.paths import REPOSITORY

sys.path.insert(0, str(REPOSITORY / ".ci"))

from count_settings import counts

_MOST = 170


def test_there_are_at_most_170_settings_and_every_page_has_some() -> None:
    """A new setting takes the place of another, or becomes a constant beside the code that uses it."""
    found = counts()
    assert min(found.values()) > 0
    assert sum(found.values()) <= _MOST, found
