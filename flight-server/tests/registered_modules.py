# SPDX-License-Identifier: Apache-2.0
"""Modules of registered functions, pools that have them, and calls of their functions over a worker's socket."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pool_driver import Reply, Zygotes, exchange, running_pool

from updraft.protocol import PROTOCOL_VERSION
from updraft.v1 import exchange_pb2
from updraft_server.ipc.worker_settings import WorkerSettings


@contextlib.contextmanager
def zygotes_with(directory: Path, **modules: str) -> Iterator[Zygotes]:
    """Run a zygote with modules of these names and texts."""
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(directory)
    try:
        zygotes = Zygotes(directory, WorkerSettings(), modules=modules)
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    try:
        yield zygotes
    finally:
        zygotes.stop()


def named(name: str, version: str = "", **call: Any) -> exchange_pb2.ExchangeCommand:
    """Return the command that calls a function."""
    registered = exchange_pb2.RegisteredFunction(name=name, version=version, **call)
    return exchange_pb2.ExchangeCommand(protocol_version=PROTOCOL_VERSION, registered=registered)


def columns(*values: Sequence[Any] | pa.Array) -> pa.RecordBatch:
    """Return a batch of arguments with a caller's column names."""
    arrays = [each if isinstance(each, pa.Array) else pa.array(each) for each in values]
    return pa.RecordBatch.from_arrays(arrays, [f"_{number}" for number in range(len(arrays))])


async def called(
    zygotes: Zygotes, name: str, *batches: pa.RecordBatch, version: str = "", schema: pa.Schema | None = None
) -> Reply:
    """Run one exchange with a pool of its own."""
    async with running_pool(zygotes) as pool:
        return await exchange(pool, batches, named(name), schema, function_version=version)
