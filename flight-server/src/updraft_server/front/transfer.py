# SPDX-License-Identifier: Apache-2.0
"""What has passed through the front: plain integers, because they change with every message."""

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Transfer:
    """Messages of one exchange, or of many.

    Artifacts, which come before the batches, are not counted; keepalives have a count of their own.
    """

    received_bytes: int = 0
    received_messages: int = 0
    sent_bytes: int = 0
    sent_messages: int = 0
    finishes: int = 0
    """Messages among the received that are no batch: they say that the client has sent all it had."""
    keep_alives: int = 0
    """Messages that say only that the client is still there."""
    rows: int = 0
    """Of exchanges that ended well, as their clients' finishes say; plain Flight has none."""

    @property
    def batches(self) -> int:
        """Batches received."""
        return self.received_messages - self.finishes

    def add(self, other: "Transfer") -> None:
        """Count what `other` has counted too."""
        self.received_bytes += other.received_bytes
        self.received_messages += other.received_messages
        self.sent_bytes += other.sent_bytes
        self.sent_messages += other.sent_messages
        self.finishes += other.finishes
        self.keep_alives += other.keep_alives
        self.rows += other.rows
