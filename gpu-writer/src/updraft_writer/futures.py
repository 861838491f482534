# SPDX-License-Identifier: Apache-2.0
"""What asyncio's futures need beside what asyncio has."""

import asyncio
from typing import Any


def ignore_failure(future: asyncio.Future[Any]) -> None:
    """Done-callback for a future that nobody may wait for any more: keeps asyncio from logging its exception."""
    if not future.cancelled():
        future.exception()
