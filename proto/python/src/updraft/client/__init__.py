# SPDX-License-Identifier: Apache-2.0
"""Clients for Python without Spark: call registered functions of a pool, and write files through a writer.

    import updraft.client

    updraft.client.call("greeting", {"name": ["Ada", "Grace"]}, endpoint="grpc://127.0.0.1:8815")

`updraft.client.writer` writes files.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from updraft.client.async_pool_client import AsyncPoolClient
    from updraft.client.functions import acall, astream, call, stream
    from updraft.client.pool_client import PoolClient

_MODULES = {
    "AsyncPoolClient": "async_pool_client",
    "PoolClient": "pool_client",
    "acall": "functions",
    "astream": "functions",
    "call": "functions",
    "stream": "functions",
}

__all__ = ["AsyncPoolClient", "PoolClient", "acall", "astream", "call", "stream"]


def __getattr__(name: str) -> Any:
    # Import these modules late, so that clients of a writer and the other commands of the command line start faster.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"updraft.client.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
