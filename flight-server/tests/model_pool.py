# SPDX-License-Identifier: Apache-2.0
"""Pools of the batched functions of `model_functions`, and helpers of their tests."""

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import model_functions
import pool_driver
import pyarrow as pa
import pytest
from pool_driver import (
    Reply,
    Zygotes,
    leased,
    receive_reply,
    requests,
    send_command,
    send_requests,
)

from updraft.v1 import exchange_pb2
from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.bindings import REGISTERED
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.pool import Pool

NUMBERS = pa.schema([pa.field("number", pa.int64())])


@contextlib.contextmanager
def zygotes_in(directory: Path, **settings: Any) -> Iterator[Zygotes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(model_functions.__file__).parent))
        patch.setenv("HOME", str(directory))
        worker = WorkerSettings(restricted_functions=("restricted",))
        started = Zygotes(directory, worker, ["model_functions"], **settings)
        yield started
        started.stop()


@contextlib.asynccontextmanager
async def running_pool(zygotes: Zygotes, **settings: Any) -> AsyncIterator[Pool]:
    """Run a pool that has only processes of its own: those of a front that the zygote still serves would end later."""
    async with pool_driver.running_pool(zygotes, **settings) as pool:
        own = pool._models._current._processes
        while not all(replica.model in own for each in await pool.measure_models() for replica in each.replicas):
            continue
        yield pool


def record_of(usage: ModelUsage) -> BatchRecord:
    return BatchRecord.from_plain(usage.record)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


class ConnectedZygote:
    """Source of a single, already open connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def next(self) -> socket.socket:
        return self._connection


async def usage_of(pool: Pool, name: str) -> ModelUsage:
    return next(usage for usage in await pool.measure_models() if usage.name == name)


def command(name: str) -> exchange_pb2.ExchangeCommand:
    return exchange_pb2.ExchangeCommand(registered=exchange_pb2.RegisteredFunction(name=name))


async def call(pool: Pool, name: str, *batches: pa.RecordBatch) -> Reply:
    """Run a whole exchange."""
    return (await calls(pool, name, [batches]))[0]


async def calls(pool: Pool, name: str, exchanges: Sequence[Sequence[pa.RecordBatch]]) -> Sequence[Reply]:
    """Run several exchanges, which send their rows once all of them are connected to the function's process."""
    leases = [await leased(pool, None, REGISTERED) for _ in exchanges]
    for lease in leases:
        await send_command(lease, NUMBERS, command(name))
    while connections(await pool.measure_models(), name) < len(leases):
        # Each answer takes about as long as a pause would.
        continue
    for lease, batches in zip(leases, exchanges, strict=True):
        await send_requests(lease, requests([batch.rename_columns(NUMBERS.names) for batch in batches]))
    replies = [await receive_reply(lease) for lease in leases]
    for lease in leases:
        lease.release(LeaseOutcome.BROKEN)
    return replies


def connections(usage: Sequence[ModelUsage], name: str) -> int:
    return sum(replica.connections for each in usage if each.name == name for replica in each.replicas)


async def has_made_room(pool: Pool, *names: str) -> None:
    """Return once one of the functions has no process any more."""
    while not any(each.evictions and not each.replicas for each in [await usage_of(pool, name) for name in names]):
        continue


def values(reply: Reply) -> list[list[int]]:
    assert reply.error is None, reply.error
    return [batch.column(0).to_pylist() for _, batch in reply.batches]
