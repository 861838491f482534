# SPDX-License-Identifier: Apache-2.0
"""How large a batch may be that comes in parts, and the setting that decides."""

from typing import NamedTuple, Self

from updraft_writer.row_groups import reserved_bytes


class BatchLimit(NamedTuple):
    """A limit in bytes of Arrow data."""

    limit_bytes: int
    setting: str
    """The one to raise for more."""

    @classmethod
    def effective(
        cls, max_batch_bytes: int, max_message_bytes: int, *, quota_bytes: int, cap_bytes: int | None
    ) -> Self:
        """The smallest of what the operator allows and what the quota, and the tenant's cap of it, have room for.

        What fits into a message is admitted alone where it is larger than the quota: that is a bounded excess.
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
