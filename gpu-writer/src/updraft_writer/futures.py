# SPDX-License-Identifier: Apache-2.0
"""What asyncio's futures need beside what asyncio has."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def on_thread(step: Callable[[], Result]) -> Result:
    """What a step on a thread returns; when cancelled, waits for it: a thread cannot be interrupted."""
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        ignore_failure(running)
        raise


def ignore_failure(future: asyncio.Future[Any]) -> None:
    """Done-callback for a future that nobody may wait for any more: keeps asyncio from logging its exception."""
    if not future.cancelled():
        future.exception()
