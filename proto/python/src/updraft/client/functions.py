# SPDX-License-Identifier: Apache-2.0
"""Single calls of registered functions, each over a new connection."""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Unpack, overload

import pyarrow as pa

from updraft.client.connection import ConnectionOptions
from updraft.client.frames import Columns, Frame
from updraft.client.pool_client import PoolClient


@overload
def call(
    name: str, data: Columns, *, group_by: Sequence[str] = (), **connection: Unpack[ConnectionOptions]
) -> pa.Table: ...
@overload
def call(name: str, data: Frame, *, group_by: Sequence[str] = (), **connection: Unpack[ConnectionOptions]) -> Frame: ...
def call(name: str, data: Any, *, group_by: Sequence[str] = (), **connection: Unpack[ConnectionOptions]) -> Any:
    """Call a registered function with a table, and return the results: `PoolClient.call` over a new connection.

    The pool is `endpoint`, or else the value of the environment variable `UPDRAFT_CLIENT_ENDPOINT`.
    `ConnectionOptions` describes the options. A program that makes many calls keeps a `PoolClient`.
    """
    with PoolClient(**connection) as client:
        return client.call(name, data, group_by=group_by)


def stream(
    name: str, data: Any, *, group_by: Sequence[str] = (), **connection: Unpack[ConnectionOptions]
) -> Iterator[Any]:
    """Call a registered function with tables that arrive one by one, and yield results: `PoolClient.stream`.

    The options are those of `call`.
    """
    with PoolClient(**connection) as client:
        yield from client.stream(name, data, group_by=group_by)


@overload
async def acall(
    name: str, data: Columns, *, group_by: Sequence[str] = (), **connection: Unpack[ConnectionOptions]
) -> pa.Table: ...
@overload
async def acall(
    name: str, data: Frame, *, group_by: Sequence[str] = (), **connection: Unpack[ConnectionOptions]
) -> Frame: ...
async def acall(name: str, data: Any, *, group_by: Sequence[str] = (), **connection: Unpack[ConnectionOptions]) -> Any:
    """Do what `call` does, from asyncio."""
    from updraft.client.async_pool_client import AsyncPoolClient

    async with AsyncPoolClient(**connection) as client:
        return await client.call(name, data, group_by=group_by)


async def astream(
    name: str, data: Any, *, group_by: Sequence[str] = (), **connection: Unpack[ConnectionOptions]
) -> AsyncGenerator[Any]:
    """Do what `stream` does, from asyncio; `data` may also be an asynchronous iterable."""
    from updraft.client.async_pool_client import AsyncPoolClient

    async with (
        AsyncPoolClient(**connection) as client,
        # Close the iterator here. Otherwise the task that reads `data` would run until garbage collection.
        contextlib.aclosing(client.stream(name, data, group_by=group_by)) as frames,
    ):
        async for frame in frames:
            yield frame
