# SPDX-License-Identifier: Apache-2.0
"""Async functions: many rows at once, never more than their author allows, on one event loop."""

import asyncio
import gc
import sys

import pytest

from updraft.errors import UserError
from updraft.functions import function
from updraft.functions.scalar import Awaited
from updraft.testing import call, load


@pytest.mark.parametrize(("concurrency", "rows"), [(1, 5), (4, 20), (64, 10)])
def test_as_many_rows_are_awaited_at_once_as_the_author_allows(concurrency: int, rows: int) -> None:
    running: set[int] = set()
    most: list[int] = []
    turn = asyncio.Event()

    @function(concurrency=concurrency)
    async def watched(x: int) -> int:
        running.add(x)
        most.append(len(running))
        if len(running) == min(concurrency, rows):
            turn.set()
        await turn.wait()
        running.remove(x)
        return -x

    assert call(watched, range(rows)).to_pylist() == [-x for x in range(rows)]
    assert max(most) == min(concurrency, rows)


def test_results_keep_the_order_of_their_rows_whichever_ends_first() -> None:
    last = asyncio.Event()

    @function
    async def backwards(x: int) -> int:
        if x == 2:
            last.set()
        else:
            await last.wait()
        return x

    assert call(backwards, [0, 1, 2]).to_pylist() == [0, 1, 2]


def test_a_row_that_fails_ends_those_that_are_awaited_beside_it() -> None:
    cancelled: list[int] = []

    @function
    async def failing(x: int) -> int:
        if x == 1:
            raise ValueError("no")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(x)
            raise
        return x

    with pytest.raises(UserError, match="ValueError: no"):
        call(failing, [0, 1, 2])
    assert set(cancelled) <= {0, 2}
    assert 0 in cancelled


def test_every_batch_runs_on_the_same_loop() -> None:
    loops: set[int] = set()

    @function
    async def noted(x: int) -> int:
        loops.add(id(asyncio.get_running_loop()))
        return x

    loaded = load(noted)
    loaded.call([1, 2], batch_rows=1)
    loaded.call([1])
    assert len(loops) == 1


async def doubled(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


def test_a_function_can_be_called_where_a_loop_runs_as_in_a_notebook() -> None:
    async def cell() -> list[int]:
        called: list[int] = call(function(doubled), [1, 2]).to_pylist()
        return called

    assert asyncio.run(cell()) == [2, 4]


def test_a_function_may_be_dropped_where_another_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    awaited = Awaited(concurrency=1)
    assert awaited.rows(doubled, [[1]], 1) == [2]

    async def drops() -> None:
        nonlocal awaited
        del awaited
        gc.collect()

    asyncio.run(drops())
    assert not ignored
