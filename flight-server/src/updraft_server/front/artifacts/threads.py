# SPDX-License-Identifier: Apache-2.0
"""How what blocks on the disk runs beside the event loop."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


async def in_thread(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """The result of what blocks; who is cancelled meanwhile leaves when the thread has let go of the files."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def remove(*paths: Path) -> None:
    """Remove files and directories, there or not."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
