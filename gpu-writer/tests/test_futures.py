# SPDX-License-Identifier: Apache-2.0
"""Steps on threads, which cannot be interrupted."""

import asyncio
import threading

import pytest

from updraft_writer.futures import on_thread


async def test_a_step_is_awaited_however_often_it_is_cancelled() -> None:
    begun, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    def step() -> None:
        begun.set()
        may_end.wait(10)
        ended.append("step")

    task = asyncio.create_task(on_thread(step))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["step"]
