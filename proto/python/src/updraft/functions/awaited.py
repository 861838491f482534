# SPDX-License-Identifier: Apache-2.0
"""Execution of async functions: a bounded number of rows at once, on one event loop for the function's lifetime."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Awaited:
    """Event loop of one function, kept so that the author's sessions and connections stay usable between batches."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        # Created by the first call, because the zygote may load the function and only then fork workers.
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, call: Callable[..., Awaitable[Any]], columns: Sequence[Any]) -> Any:
        """Call the function once with whole columns; raise whatever it raises."""

        async def called() -> Any:
            return await call(*columns)

        return self._run(called())

    def rows(self, call: Callable[..., Awaitable[Any]], columns: Sequence[Sequence[Any]], rows: int) -> list[Any]:
        """Call the function for each row; the first exception cancels the running calls and is raised."""
        arguments = list(zip(*columns, strict=True)) if columns else [()] * rows
        return self._run(self._rows(call, arguments))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.new_event_loop()
            # Only close the loop. The garbage collector may run this at any point, so the author's code must not run
            # here.
            weakref.finalize(self, loop.close)
        return _beside_other_loops(lambda: loop.run_until_complete(coroutine))

    async def _rows(self, call: Callable[..., Awaitable[Any]], rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        results: list[Any] = [None] * len(rows)
        numbers = iter(range(len(rows)))

        async def work() -> None:
            # All tasks take row numbers from the same iterator.
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
    """Run `call`, which runs an event loop; use another thread if this one already runs a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(call).result()
