# SPDX-License-Identifier: Apache-2.0
"""A batched function, as its model process and the workers that call it need it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

import pyarrow as pa

from updraft.functions import Batching


class LoadedModel(Protocol):
    """What the function's constructor has made, in its model process."""

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The results of rows that belong to several exchanges; raises whatever the function raises."""

    def alone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The results of rows of one exchange, with the function's policy for rows that fail; raises UpdraftError."""

    def warm_up(self) -> None:
        """Whatever the author wants done before the first rows come; raises whatever the function raises."""


class BatchedFunction(Protocol):
    """A function whose author asked for batches of rows of many exchanges."""

    @property
    def name(self) -> str:
        """With its namespaces."""

    @property
    def version(self) -> str:
        """Its version."""

    @property
    def batching(self) -> Batching:
        """What the author asked for."""

    @property
    def argument_schema(self) -> pa.Schema:
        """Of every batch that a model process gets."""

    @property
    def result_schema(self) -> pa.Schema:
        """Of every batch that it gives."""

    @property
    def deterministic(self) -> bool:
        """Whether the same rows give the same results, so that they may be called again when their process died."""

    def checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The arguments of a client, checked strictly, with defaults, and in the types of `argument_schema`.

        Raises UpdraftError.
        """

    @property
    def load(self) -> Callable[[], LoadedModel]:
        """Makes the model; raises whatever the constructor raises."""


def batched(functions: Iterable[object]) -> Sequence[BatchedFunction]:
    """Those of the functions whose authors asked for batches."""
    return [batching for function in functions if (batching := as_batched(function)) is not None]


def as_batched(function: object) -> BatchedFunction | None:
    """The function, if its author asked for batches; None otherwise."""
    return cast(BatchedFunction, function) if getattr(function, "batching", None) else None
