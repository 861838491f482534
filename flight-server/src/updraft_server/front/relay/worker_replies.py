# SPDX-License-Identifier: Apache-2.0
"""Parts of a worker's messages that the front reads: the start of a reply's metadata, loads of a function, and errors.

A worker may send any bytes. The front parses only the fields that it needs, and passes on only errors that a worker may
report.
"""

import asyncio
import math
from collections.abc import Callable
from typing import NamedTuple

from updraft import errors
from updraft.v1.exchange_pb2 import Error
from updraft_server.ipc.frames import FrameError
from updraft_server.ipc.load import Load

_CONSUMED_TAG, _FINISH_TAG = b"\x08", b"\x1a"
# Enough for the whole first field and the tag of the second.
_FIRST_BYTES = 12

# Errors that a worker may report. Other errors name callers, the queue or worker exits, so only the front can raise
# them.
_OF_WORKERS = (
    errors.UserError,
    errors.ProtocolError,
    errors.LimitError,
    errors.FunctionNotFoundError,
    errors.FunctionLoadError,
    errors.FunctionRefusedError,
    errors.VersionMismatchError,
    errors.PoolUnavailableError,
    errors.InternalError,
)
# The front does not see how a model process ends: workers ask the zygote and report the end.
_OF_BATCHED_FUNCTIONS = (*_OF_WORKERS, errors.WorkerError)


class ReplyMetadataStart(NamedTuple):
    """First bytes of a reply's ReplyMetadata, parsed lazily: the fields `consumed` and `finish`, found by their tags.

    The front parses no other field: a malicious message could use many times its size in memory once it is parsed.
    """

    start: bytes = b""

    @classmethod
    def of(cls, metadata: memoryview | bytes) -> "ReplyMetadataStart":
        """Return the start of serialized ReplyMetadata; only the first bytes are copied."""
        return cls(bytes(metadata[:_FIRST_BYTES]))

    @property
    def consumed(self) -> int:
        """`ReplyMetadata.consumed`; 0 when the message does not set it."""
        number = 0
        for position, byte in enumerate(self._consumed_bytes):
            number |= (byte & 0x7F) << (7 * position)
        return number

    @property
    def is_finish(self) -> bool:
        """Whether this is the last message. The field is ignored unless it is where workers write it."""
        consumed = self._consumed_bytes
        return self.start[1 + len(consumed) if consumed else 0 :].startswith(_FINISH_TAG)

    @property
    def _consumed_bytes(self) -> bytes:
        if not self.start.startswith(_CONSUMED_TAG):
            return b""
        last = next((at for at, byte in enumerate(self.start) if at and byte < 0x80), len(self.start))
        return self.start[1 : last + 1]


class TimedLoad:
    """Load of an exchange's function, with its time limit.

    A worker loads the function before it takes the first batch. A model process loads its function when it starts.
    """

    def __init__(self, on_late: Callable[[errors.FunctionLoadError], None]) -> None:
        """Create the record without a running load; `on_late` is called with an error when a load exceeds its limit."""
        self._on_late = on_late
        self._load: Load | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.has_been = False
        """Whether a load has ended."""

    @property
    def is_running(self) -> bool:
        """Whether the function is being loaded; other limits are suspended meanwhile."""
        return self._load is not None

    def begin(self, load: memoryview | bytes) -> None:
        """Begin the load that a frame encodes; raise FrameError if the frame is malformed or another load runs."""
        if self._load is not None:
            raise FrameError("a load began while another one runs")
        try:
            self._load = begun = Load.decode(bytes(load))
        except ValueError as error:
            raise FrameError(str(error)) from None
        if 0 < begun.limit_seconds < math.inf:
            self._timer = asyncio.get_running_loop().call_later(begun.limit_seconds, self._is_late, begun)

    def end(self) -> None:
        """End the load. Idempotent."""
        self._load, self.has_been = None, True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self, load: Load) -> None:
        self._on_late(errors.FunctionLoadError(load.fault(f"{load.lateness}, and its worker was ended")))


def error_of_worker(failed: memoryview | bytes, *, is_batched: bool) -> errors.UpdraftError:
    """Return the error that a worker reports, or InternalError for an error that only the front may raise.

    Args:
        failed: Serialized Error that the worker sent. Anything else raises DecodeError.
        is_batched: Whether the worker calls a batched function.
    """
    error = errors.error_from_message(Error.FromString(bytes(failed)))
    if isinstance(error, _OF_BATCHED_FUNCTIONS if is_batched else _OF_WORKERS):
        return error
    return errors.InternalError(f"the worker reported an error that workers cannot have: {type(error).__name__}")
