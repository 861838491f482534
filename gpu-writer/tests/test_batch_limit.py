# SPDX-License-Identifier: Apache-2.0
"""Limit on the size of a batch in parts."""

import pytest

from updraft_writer.row_groups import batch_limit

MIB = 1 << 20


@pytest.mark.parametrize(
    ("max_batch", "quota", "cap", "limit", "setting"),
    [
        (1024, 4096, None, 1024, "--max-batch-bytes of the writer"),
        (1024, 1000, None, 500, "--quota-bytes of the writer to 2 times the batch"),
        (1024, 4096, 600, 300, "max_quota_bytes of the tenant to 2 times the batch"),
        (1024, 4096, 4096, 1024, "--max-batch-bytes of the writer"),
        # A batch as large as a message is always accepted.
        (1024, 10, None, 64, "--quota-bytes of the writer to 2 times the batch"),
        (1024, 4096, 0, 64, "max_quota_bytes of the tenant to 2 times the batch"),
    ],
)
def test_the_smallest_limit_counts_and_is_named(
    max_batch: int, quota: int, cap: int | None, limit: int, setting: str
) -> None:
    cap_bytes = None if cap is None else cap * MIB
    found = batch_limit(max_batch * MIB, 64 * MIB, quota_bytes=quota * MIB, cap_bytes=cap_bytes)
    assert found == (limit * MIB, setting)
