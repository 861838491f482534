# SPDX-License-Identifier: Apache-2.0
"""Blocking disk operations, run in threads so that they do not block the event loop."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


async def in_thread(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Run a blocking function in a thread and return its result; if cancelled, first wait for the thread to end."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def remove(*paths: Path) -> None:
    """Remove files and directories; ignore missing ones."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
