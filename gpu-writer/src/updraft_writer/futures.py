# SPDX-License-Identifier: Apache-2.0
"""Helpers for asyncio's futures."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")


async def on_thread(step: Callable[[], Result]) -> Result:
    """Run a step on a thread and return its result.

    If the caller is cancelled, even more than once, still wait for the step, because a thread cannot be stopped.
    """
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        ignore_failure(running)
        raise


def ignore_failure(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a future that nobody awaits, so that asyncio does not log it; a done-callback."""
    if not future.cancelled():
        future.exception()
