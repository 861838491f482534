# SPDX-License-Identifier: Apache-2.0
"""Counters of messages and bytes that the front has relayed: plain integers, because they change with every message."""

from dataclasses import dataclass, fields


@dataclass(eq=False, slots=True)
class Transfer:
    """Message counts of one exchange, or of many.

    Artifacts, which arrive before the batches, are not counted. Keepalives are counted separately.
    """

    received_bytes: int = 0
    received_messages: int = 0
    sent_bytes: int = 0
    sent_messages: int = 0
    finishes: int = 0
    """Received messages that carry no batch and mark the end of the client's batches."""
    parts: int = 0
    """Received messages that carry a part of a batch, except the last part of each batch."""
    dictionaries: int = 0
    """Received messages that carry a dictionary for later batches, and no rows."""
    keep_alives: int = 0
    """Received messages that only show that the client is still there."""
    segment_received_bytes: int = 0
    """Received bytes that came through a segment; `received_bytes` includes them."""
    segment_sent_bytes: int = 0
    """Sent bytes that went through a segment; `sent_bytes` includes them."""
    rows: int = 0
    """Rows of exchanges that succeeded, as clients state in their finish messages; plain Flight has no such message."""

    @property
    def batches(self) -> int:
        """Batches received."""
        return self.received_messages - self.finishes - self.parts - self.dictionaries

    @property
    def bytes_by_direction(self) -> dict[str, int]:
        """Bytes received and sent."""
        return {"received": self.received_bytes, "sent": self.sent_bytes}

    @property
    def segment_bytes_by_direction(self) -> dict[str, int]:
        """Bytes received and sent through segments."""
        return {"received": self.segment_received_bytes, "sent": self.segment_sent_bytes}

    @property
    def messages_by_direction(self) -> dict[str, int]:
        """Messages received and sent."""
        return {"received": self.received_messages, "sent": self.sent_messages}

    def add(self, other: "Transfer") -> None:
        """Add the counts of `other`."""
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))
