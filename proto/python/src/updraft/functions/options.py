# SPDX-License-Identifier: Apache-2.0
"""Options of `@function`, `@function.table` and `@function.aggregate`."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, TypedDict

import pyarrow as pa

SchemaFunction: TypeAlias = Callable[[pa.Schema], pa.Schema]

_DEVICES = ("", "cuda")
_MOST_REPLICAS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Batching:
    """Option that joins rows of many exchanges into batches. Separate model processes compute these batches.

    Only these processes load the class, so a pool holds one copy of the class in memory for each replica, not for each
    worker.

    Raises:
        ValueError: A value is out of range.
    """

    rows: int = 512
    """Rows of a full batch: the maximum number of rows that the function gets at once."""
    wait_seconds: float = 0.01
    """How long rows may wait for more rows before the function gets a batch that is not full."""
    replicas: int = 1
    """Number of processes that each load a copy of the function; at most 32."""
    device: str = ""
    """"cuda" gives each replica one GPU of the pool in turn (CUDA_VISIBLE_DEVICES); empty leaves devices alone."""
    threads: int = 0
    """CPU threads for numerical libraries (OpenMP, OpenBLAS, MKL). This only affects libraries that a model process
    itself loads, for example by an import in the constructor. 0 divides the machine's CPUs among the replicas."""
    timeout_seconds: float = 300.0
    """Time limit for one batch. The pool kills and replaces a process that takes longer. 0 sets no limit."""
    load_timeout_seconds: float = 600.0
    """Time limit for loading and `warm_up`; 0 sets no limit."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError("rows of Batching must be at least 1")
        if not 1 <= self.replicas <= _MOST_REPLICAS:
            raise ValueError(f"replicas of Batching must be from 1 to {_MOST_REPLICAS}")
        times = self.wait_seconds, self.timeout_seconds, self.load_timeout_seconds
        # `not all(... >= 0)` also refuses NaN.
        if self.threads < 0 or not all(seconds >= 0 for seconds in times):
            raise ValueError("wait_seconds, threads and the timeouts of Batching cannot be less than 0")
        if self.device not in _DEVICES:
            raise ValueError(f'device of Batching must be "" or "cuda", not {self.device!r}')


class Options(TypedDict, total=False):
    """Options of every decorator."""

    name: str
    """Name for callers; dots separate namespaces. Default: the name of the code."""
    version: str
    """Any text without spaces or @. If a module defines several versions, the last one is the default. Default: "1"."""
    description: str
    """Purpose of the function; lists show the first line. Default: the docstring."""
    tags: Sequence[str]
    """Words by which users can find the function."""
    owner: str
    """Team or address responsible for the function."""
    deterministic: bool
    """Whether equal arguments always give equal results, which is the default."""
    load: Literal["worker", "zygote"]
    """Where a class is constructed. "worker", the default: in each worker that runs the class. "zygote": once in the
    zygote, before workers are forked; such a class must not hold threads, locks or connections."""
    load_timeout_seconds: float | None
    """Time limit for the constructor and `warm_up` of a class; exceeding it counts as the function's fault. 0 sets no
    limit. Default: --load-timeout-seconds of the pool. For a batched function, set the limit in its `Batching`."""


class FunctionOptions(Options, total=False):
    """Options of `@function`."""

    on_error: Literal["raise", "null", "struct"]
    """Effect of a row's failure. "raise", the default: the call fails. "null": the row's result is null. "struct":
    every result is a struct of `value` and `error`. With "null" or "struct", if code that takes columns fails, it is
    called again with ever smaller parts of the batch, down to single rows."""
    concurrency: int | None
    """Rows that a worker awaits at once, for an async function of plain values. Default: 32."""
    batching: Batching | None
    """Joins rows of many callers into batches. Separate model processes compute these batches."""
    arguments: pa.Schema | None
    """Names and types of the arguments, instead of hints; the code gets pyarrow arrays."""
    result: pa.DataType | pa.Field | SchemaFunction | None
    """Type of the result, instead of a hint. For a function of any columns: a callable that computes the schema of the
    results from the schema of the arguments."""


class TableOptions(Options, total=False):
    """Options of `@function.table`."""

    arguments: pa.Schema | None
    """Names and types of the arguments, instead of hints; the code gets pyarrow arrays."""
    result: pa.Schema | None
    """Columns of the results, for code that takes Arrow columns."""
