# SPDX-License-Identifier: Apache-2.0
"""Cancellation of a caller that waits for its own tasks to end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from updraft.client.async_pool_client import _ended


async def test_a_caller_is_cancelled_while_its_task_ends() -> None:
    async def slow_to_end() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        await asyncio.sleep(0.05)

    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    caller = asyncio.create_task(_ended(task))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
