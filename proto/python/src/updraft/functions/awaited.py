# SPDX-License-Identifier: Apache-2.0
"""Awaits async functions: a bounded number of rows at once, on one event loop for as long as the function is loaded."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Awaited:
    """One event loop, so that sessions and connections that the author keeps stay usable from batch to batch."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        # Made by the first call: what the zygote has loaded is forked.
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, call: Callable[..., Awaitable[Any]], columns: Sequence[Any]) -> Any:
        """One call with whole columns; raises whatever it raises."""

        async def called() -> Any:
            return await call(*columns)

        return self._run(called())

    def rows(self, call: Callable[..., Awaitable[Any]], columns: Sequence[Sequence[Any]], rows: int) -> list[Any]:
        """A call for each of so many rows; the first exception ends those that run, and is raised."""
        arguments = list(zip(*columns, strict=True)) if columns else [()] * rows
        return self._run(self._rows(call, arguments))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.new_event_loop()
            # Runs no code of the author: whoever is interrupted by the garbage collector would not expect any.
            weakref.finalize(self, loop.close)
        return _beside_other_loops(lambda: loop.run_until_complete(coroutine))

    async def _rows(self, call: Callable[..., Awaitable[Any]], rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        results: list[Any] = [None] * len(rows)
        numbers = iter(range(len(rows)))

        async def work() -> None:
            # All of them take from the same iterator.
            for number in numbers:
                results[number] = await call(*rows[number])

        tasks = [asyncio.create_task(work()) for _ in range(min(self._concurrency, len(rows)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return results


def _beside_other_loops(call: Callable[[], T]) -> T:
    """What `call` returns, which runs a loop: a thread runs one at a time, and in a notebook one always does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(call).result()
