# SPDX-License-Identifier: Apache-2.0
"""Sampling profiler of running functions.

No profiler can attach to a worker, because its memory is hidden. So the front asks the workers for their Python stacks
many times a second, and counts equal stacks. A profile shows where a function spends its time, including waits. Only
exchanges that are being profiled become slower: a worker writes a stack in well below a millisecond.
"""

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from updraft.errors import PoolFullError
from updraft_server.front.status.activity import Activity, OpenExchange
from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.pool.worker_events import Reader

HERTZ = 50
LONGEST_SECONDS = 60.0
MOST_PROCESSES = 16
"""Maximum number of workers, and of model processes, that a profile samples at once."""
MOST_PROFILES = 4
RETRY_AFTER_MILLISECONDS = 1000
# A function can forge its stacks and make every stack different, so limit their number.
_MOST_STACKS = 5000
_OTHERS = "(other stacks)"

_MOST_CHARACTERS = 8 << 20
"""Maximum number of characters in all different stacks of a profile together."""
_MOST_FRAMES = 200
# A function can forge its stacks. These patterns have bounded lengths, so that matching is cheap for any text.
_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]{1,500})", line \d{1,9} in (?P<name>.{1,200})$', re.MULTILINE)
_PACKAGES = re.compile(r"^.*/(?:(?:site|dist)-packages|python3[^/]*|src)/")
# Files of the outermost calls, which are the same in every worker: the start of the zygote, and its fork.
_START = re.compile(r".*/updraft_server/zygote/[^/]*\.py$|^<frozen runpy>$")
# Files of the innermost calls of a thread that waits for work.
_WAITING = ("/threading.py", "/queue.py", "/selectors.py", "/concurrent/futures/thread.py")


@dataclass(frozen=True, slots=True)
class Profile:
    """Counted stacks."""

    seconds: float
    samples: int
    """Number of times that a process has reported its stacks: one for each busy thread."""
    stacks: Counter[str]
    """Number of samples by stack: the function's name, then its calls from the outermost, separated by semicolons."""

    def to_plain(self) -> dict[str, Any]:
        """Return the profile for JSON."""
        return {"seconds": self.seconds, "samples": self.samples, "hertz": HERTZ, "stacks": dict(self.stacks)}


class Profiler:
    """Profiler of one pool. Used from one event loop."""

    def __init__(
        self,
        activity: Activity,
        stack: Callable[[str], Awaitable[str | None]],
        models: Callable[[], Iterable[ModelUsage]],
    ) -> None:
        """Prepare to profile.

        Args:
            activity: Open exchanges and their workers.
            stack: Returns the stacks of a worker or a model process.
            models: Returns the model processes of batched functions.
        """
        self._activity = activity
        self._stack = stack
        self._models = models
        self._running: set[str | None] = set()

    async def profile(self, function: str, seconds: float, readers: frozenset[Reader] | None) -> Profile:
        """Profile a function, or every function if the name is empty; raise PoolFullError if too many profiles run.

        Args:
            function: Name of the function, as in the log.
            seconds: How long to sample.
            readers: Readers whose exchanges to profile; None profiles all exchanges, and model processes.
        """
        caller = None if readers is None else next(iter(readers)).identity
        # The limit on profiles does not apply to callers who may see all exchanges.
        if caller in self._running or (caller is not None and len(self._running) >= MOST_PROFILES):
            raise PoolFullError(
                "other profiles of this pool are running: try again when one has ended",
                retry_after_milliseconds=RETRY_AFTER_MILLISECONDS,
            )
        self._running.add(caller)
        try:
            return await self._sampled(function, min(seconds, LONGEST_SECONDS), readers)
        finally:
            self._running.remove(caller)

    async def _sampled(self, function: str, seconds: float, readers: frozenset[Reader] | None) -> Profile:
        stacks: Counter[str] = Counter()
        samples, left = 0, _MOST_CHARACTERS
        began = now = time.monotonic()
        while now - began < seconds:
            exchanges = list(itertools.islice(self._exchanges(function, readers), MOST_PROCESSES))
            looks = [self._look(exchange) for exchange in exchanges]
            if readers is None:
                models = itertools.islice(self._model_processes(function), MOST_PROCESSES)
                looks += [self._look_at_model(name, model) for name, model in models]
            for found in await asyncio.gather(*looks):
                samples += bool(found)
                for stack in found:
                    if stack not in stacks:
                        if len(stacks) >= _MOST_STACKS or len(stack) > left:
                            stacks[_OTHERS] += 1
                            continue
                        left -= len(stack)
                    stacks[stack] += 1
            later = time.monotonic()
            await asyncio.sleep(max(1 / HERTZ - (later - now), 0.001))
            now = time.monotonic()
        return Profile(seconds, samples, stacks)

    def _exchanges(self, function: str, readers: frozenset[Reader] | None) -> Iterable[OpenExchange]:
        return (
            exchange
            for exchange in self._activity.open
            if exchange.worker
            and (not function or exchange.identity.get("function") == function)
            and (readers is None or readers & exchange.readers)
        )

    def _model_processes(self, function: str) -> Iterable[tuple[str, str]]:
        return (
            (usage.name, replica.model)
            for usage in self._models()
            if not function or usage.name == function
            for replica in usage.replicas
        )

    async def _look(self, exchange: OpenExchange) -> list[str]:
        worker = exchange.worker
        text = await self._stack(worker)
        # The worker may run the exchange of another caller by now.
        if not text or exchange.worker != worker:
            return []
        return folded(exchange.identity.get("function", ""), text)

    async def _look_at_model(self, function: str, model: str) -> list[str]:
        return folded(f"{function} (model process)", await self._stack(model) or "")


def folded(function: str, text: str) -> list[str]:
    """Return the stacks of busy threads, in the form of `Profile.stacks`; the main thread always counts as busy.

    Args:
        function: Name of the function.
        text: Stacks as `faulthandler` writes them: each with its innermost call first, the main thread's last.
    """
    threads = [list(itertools.islice(_FRAME.finditer(thread), _MOST_FRAMES)) for thread in text.split("\n\n")]
    threads = [frames for frames in threads if frames]
    busy = [frames for frames in threads[:-1] if not frames[0]["file"].endswith(_WAITING)]
    return [";".join([_label(function), *_calls(frames)]) for frames in [*busy, *threads[-1:]]]


def _calls(frames: list[re.Match[str]]) -> list[str]:
    own = next((number for number, frame in enumerate(frames) if _START.match(frame["file"])), len(frames))
    return [_label(f"{frame['name']} ({_PACKAGES.sub('', frame['file'])})") for frame in reversed(frames[:own])]


def _label(text: str) -> str:
    return text.replace(";", ",")
