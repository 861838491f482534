# SPDX-License-Identifier: Apache-2.0
"""The errors that workers tell of: a front passes on those alone of which a worker can know."""

from updraft.errors import (
    FunctionLoadError,
    FunctionNotFoundError,
    FunctionRefusedError,
    InternalError,
    LimitError,
    PoolUnavailableError,
    ProtocolError,
    UpdraftError,
    UserError,
    VersionMismatchError,
    WorkerError,
    error_from_message,
)
from updraft.v1.exchange_pb2 import Error

# Of the others each says something that only a front knows: who calls, what waits, how a worker ended.
_OF_WORKERS = (
    UserError,
    ProtocolError,
    LimitError,
    FunctionNotFoundError,
    FunctionLoadError,
    FunctionRefusedError,
    VersionMismatchError,
    PoolUnavailableError,
    InternalError,
)
# How a model process has ended no front sees: its workers ask the zygote.
_OF_BATCHED_FUNCTIONS = (*_OF_WORKERS, WorkerError)


def error_of_worker(failed: memoryview | bytes, *, is_batched: bool) -> UpdraftError:
    """The error that a worker tells of; it may not speak for the front.

    Args:
        failed: A serialized Error, as the worker sent it; raises DecodeError where it is none.
        is_batched: Whether the worker calls a batched function.
    """
    error = error_from_message(Error.FromString(bytes(failed)))
    if isinstance(error, _OF_BATCHED_FUNCTIONS if is_batched else _OF_WORKERS):
        return error
    return InternalError(f"the worker told of an error that no worker has: {type(error).__name__}")
