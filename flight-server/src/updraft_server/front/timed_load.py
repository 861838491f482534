# SPDX-License-Identifier: Apache-2.0
"""The load of an exchange's function: the worker says when it begins and ends, and here it has its limit of time."""

import asyncio
import math
from collections.abc import Callable

from updraft.errors import FunctionLoadError
from updraft_server.ipc.frames import FrameError
from updraft_server.ipc.load import Load


class TimedLoad:
    """What is loaded now: by the worker before it takes the first batch, by a model process whenever it is new."""

    def __init__(self, on_late: Callable[[FunctionLoadError], None]) -> None:
        """Nothing is loaded yet; `on_late` hears of a load that takes longer than it may."""
        self._on_late = on_late
        self._load: Load | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.has_been = False
        """Whether one has ended."""

    @property
    def is_running(self) -> bool:
        """Whether a function is being loaded: that has a limit of its own, and nothing else counts yet."""
        return self._load is not None

    def begin(self, load: memoryview | bytes) -> None:
        """A load begins, encoded as it travels; raises FrameError where it is none, or one is running."""
        if self._load is not None:
            raise FrameError("a worker loads one function at a time")
        try:
            self._load = begun = Load.decode(bytes(load))
        except ValueError as error:
            raise FrameError(str(error)) from None
        if 0 < begun.limit_seconds < math.inf:
            self._timer = asyncio.get_running_loop().call_later(begun.limit_seconds, self._is_late, begun)

    def end(self) -> None:
        """None is running any more. Idempotent."""
        self._load, self.has_been = None, True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self, load: Load) -> None:
        self._on_late(FunctionLoadError(load.fault(f"{load.lateness}, and its worker was ended")))
