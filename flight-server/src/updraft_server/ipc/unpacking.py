# SPDX-License-Identifier: Apache-2.0
"""Messages between the front and an unpacker: the bounds are an argument, and the other messages use a socket.

    unpacker                     front
    room 1234567  ------------>  takes the room
                  <------------  granted
    ...
    verdict       ------------>

Every archive starts an unpacker, so this module imports little. An unpacker reads untrusted bytes, which may take it
over, so the front accepts only verdicts that `decode` accepts.
"""

import enum
from typing import NamedTuple

MAX_VERDICT_BYTES = 4096
ROOM_GRANTED = b"\n"
"""Answer of a front that grants room. A front that refuses a request ends the unpacker."""
_ROOM = b"room "
_MAX_REASON_CHARACTERS = 500
_MAX_ERROR_NUMBER = 4095


class UnpackBounds(NamedTuple):
    """Bounds of one archive and of its unpacker."""

    total_bytes: int
    """Bytes of all members together. A single member may use all of them."""
    members: int
    header_bytes: int
    """Bytes of all headers together that may come before the data of one member."""
    name_bytes: int
    """Bytes of one name or link target."""
    names_bytes: int
    """Bytes of all names and link targets together."""
    depth: int
    """Number of names in one path."""
    memory_bytes: int
    """Address space of the unpacker."""
    cpu_seconds: int
    block_bytes: int
    """Size of a block of the disk; a file takes whole blocks."""
    entry_bytes: int
    """Smallest amount of disk that a file, directory or link takes."""
    room_bytes: int
    """Disk space that is granted from the start, for all entries together."""

    def encode(self) -> str:
        """Return the bounds as an argument of a command line."""
        return ",".join(map(str, self))

    @classmethod
    def decode(cls, argument: str) -> "UnpackBounds":
        """Return the bounds in `argument`."""
        return cls(*map(int, argument.split(",")))


class RoomRequest(NamedTuple):
    """Request for disk space, sent before the space is used."""

    room_bytes: int
    """Total space, including the space that was granted before."""

    def encode(self) -> bytes:
        """Return the request as a line."""
        return b"%s%d\n" % (_ROOM, self.room_bytes)

    @classmethod
    def decode(cls, line: bytes) -> "RoomRequest | None":
        """Return the request, or None for any other line; raise ValueError if the size is not a number."""
        return cls(int(line.removeprefix(_ROOM))) if line.startswith(_ROOM) else None


class UnpackOutcome(enum.Enum):
    """Outcome of an unpacker's work."""

    UNPACKED = "unpacked"
    REFUSED = "refused"
    """The archive is to blame."""
    FAULT = "fault"
    """This host is to blame."""


class UnpackVerdict(NamedTuple):
    """Report of an unpacker on its archive."""

    outcome: UnpackOutcome
    reason: str = ""
    """Reason, worded to follow the name of the artifact; set when refused."""
    error_number: int = 0
    """Error number of a fault."""

    def encode(self) -> bytes:
        """Return the verdict in at most MAX_VERDICT_BYTES."""
        reason = self.reason[:_MAX_REASON_CHARACTERS].encode("utf-8", "backslashreplace").decode()
        return f"{self.outcome.value}\n{self.error_number}\n{reason}".encode()[:MAX_VERDICT_BYTES]

    @classmethod
    def decode(cls, encoded: bytes) -> "UnpackVerdict":
        """Return the verdict; raises ValueError for anything that `encode` does not write."""
        outcome, number, reason = encoded.decode().split("\n", 2)
        error_number = int(number)
        if not 0 <= error_number <= _MAX_ERROR_NUMBER:
            raise ValueError(f"unknown error number {error_number}")
        return cls(UnpackOutcome(outcome), reason[:_MAX_REASON_CHARACTERS], error_number)
