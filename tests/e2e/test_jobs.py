# SPDX-License-Identifier: Apache-2.0
"""Whole jobs, as users write them, give the same results on a pool as on stock PySpark."""

from __future__ import annotations

import pytest

from tests.e2e.jobs import JOBS
from tests.e2e.sides import Query, Sides

_JOBS = [job for jobs in JOBS.values() for job in jobs]


@pytest.mark.one_of_each
@pytest.mark.parametrize("job", _JOBS, ids=lambda job: job.__name__)
def test_a_job_gives_what_it_gives_on_stock(sides: Sides, job: Query) -> None:
    assert sides.assert_same(job).rows
