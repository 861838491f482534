# SPDX-License-Identifier: Apache-2.0
"""Standard output and error that neither block nor fail the process that writes to them.

A full, unread pipe blocks its writers, and writes to a full disk fail, both in Python code and in C libraries.
`protect_standard_streams` reopens pipes and terminals as non-blocking, also for child processes, and installs Python
streams that drop data which cannot be written at once. It starts no thread.
"""

import contextlib
import fcntl
import io
import os
import select
import stat
import sys
from typing import TYPE_CHECKING, BinaryIO, ClassVar, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT = 1
STDERR = 2


def protect_standard_streams() -> None:
    """Replace sys.stdout and sys.stderr, and make descriptors 1 and 2 non-blocking if that affects no other process."""
    for descriptor in (STDOUT, STDERR):
        _open_if_closed(descriptor)
        unblock(descriptor)
    sys.stdout = _text_stream(LossyFile(STDOUT))
    sys.stderr = _text_stream(LossyFile(STDERR))


def unblock(descriptor: int) -> None:
    """Make writes to a pipe or a terminal fail instead of blocking.

    O_NONBLOCK belongs to the open file, and this process shares the open file with its parent. So this function reopens
    the file. Descriptors that cannot be reopened (sockets, another user's pipes) stay unchanged. Files on a disk do not
    block.
    """
    with contextlib.suppress(OSError):
        mode = os.fstat(descriptor).st_mode
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if flags & os.O_NONBLOCK or not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            return
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        os.dup2(own, descriptor)
        os.close(own)


def _open_if_closed(descriptor: int) -> None:
    """Open /dev/null on a closed descriptor; otherwise the next opened file would get this number."""
    try:
        os.fstat(descriptor)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != descriptor:
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


class LossyFile(io.FileIO):
    """Raw stream over a descriptor that drops data which cannot be written at once."""

    waits: ClassVar[bool] = False
    """Whether writes block and fail as on any file. Set it in a process whose output is certainly read."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write what fits and drop the rest; return the length of `data`."""
        if self.waits:
            return super().write(data)
        left = memoryview(data).cast("B")
        length = len(left)
        with contextlib.suppress(OSError):
            # A ready pipe accepts PIPE_BUF bytes at once, so no write blocks, even if the pipe could not be reopened.
            while left and self._room.poll(0):
                written = super().write(left[: select.PIPE_BUF])
                if not written:
                    break
                left = left[written:]
        return length


def _text_stream(raw: io.RawIOBase) -> TextIO:
    # Python creates its own unbuffered streams in the same way: a raw stream is all that TextIOWrapper needs.
    return io.TextIOWrapper(cast(BinaryIO, raw), "utf-8", "backslashreplace", line_buffering=True, write_through=True)
