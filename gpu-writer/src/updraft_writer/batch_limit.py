# SPDX-License-Identifier: Apache-2.0
"""Limit on the size of a batch that comes in parts, and the setting that decides it."""

from typing import NamedTuple, Self

from updraft_writer.row_groups import reserved_bytes


class BatchLimit(NamedTuple):
    """Limit in bytes of Arrow data."""

    limit_bytes: int
    setting: str
    """Setting to raise for larger batches."""

    @classmethod
    def effective(
        cls, max_batch_bytes: int, max_message_bytes: int, *, quota_bytes: int, cap_bytes: int | None
    ) -> Self:
        """Return the smallest of the operator's limit, the room in the quota, and the room in the tenant's cap.

        A batch that fits into one message is allowed even if it exceeds the quota: it is admitted alone, and the excess
        is bounded.
        """
        times = reserved_bytes(1)
        limits = [
            cls(max_batch_bytes, "--max-batch-bytes of the writer"),
            cls(
                max(max_message_bytes, quota_bytes // times), f"--quota-bytes of the writer to {times} times the batch"
            ),
        ]
        if cap_bytes is not None:
            room_bytes = max(max_message_bytes, cap_bytes // times)
            limits.append(cls(room_bytes, f"max_quota_bytes of the tenant to {times} times the batch"))
        return min(limits, key=lambda limit: limit.limit_bytes)
