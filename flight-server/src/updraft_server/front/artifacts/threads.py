# SPDX-License-Identifier: Apache-2.0
"""How what blocks on the disk runs beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVarTuple

Arguments = TypeVarTuple("Arguments")


async def in_thread(function: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
    """Run what blocks; who is cancelled meanwhile leaves when the thread has let go of the files."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
