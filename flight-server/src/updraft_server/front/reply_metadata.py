# SPDX-License-Identifier: Apache-2.0
"""What a front reads of a worker's ReplyMetadata: its first fields, `consumed` and `finish`, by their tags.

Nothing else of it is parsed in the front: what a worker makes up may be many times as large when it is parsed.
"""

from typing import NamedTuple

_CONSUMED_TAG, _FINISH_TAG = b"\x08", b"\x1a"
# All bytes of the first field, and the tag of the second.
_FIRST_BYTES = 12


class ReplyMetadataStart(NamedTuple):
    """How the metadata of a worker's message begins: parsed when somebody asks."""

    start: bytes = b""

    @classmethod
    def of(cls, metadata: memoryview | bytes) -> "ReplyMetadataStart":
        """Of serialized ReplyMetadata, of which only the first bytes are copied."""
        return cls(bytes(metadata[:_FIRST_BYTES]))

    @property
    def consumed(self) -> int:
        """`ReplyMetadata.consumed`; 0 when the message says none."""
        number = 0
        for position, byte in enumerate(self._consumed_bytes):
            number |= (byte & 0x7F) << (7 * position)
        return number

    @property
    def is_finish(self) -> bool:
        """Whether the message is the last. Only a field in the place where workers write it counts."""
        consumed = self._consumed_bytes
        return self.start[1 + len(consumed) if consumed else 0 :].startswith(_FINISH_TAG)

    @property
    def _consumed_bytes(self) -> bytes:
        if not self.start.startswith(_CONSUMED_TAG):
            return b""
        last = next((at for at, byte in enumerate(self.start) if at and byte < 0x80), len(self.start))
        return self.start[1 : last + 1]
