# SPDX-License-Identifier: Apache-2.0
"""Batched function, in the form that both its model process and its calling workers use."""

from typing import Any, Protocol, cast

import pyarrow as pa

from updraft.functions import Batching, Function
from updraft.functions.loaded import load
from updraft_server.worker.explanations import explain


class LoadedModel(Protocol):
    """Function after its constructor has run in the model process: `updraft.functions.scalar.LoadedScalar`."""

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results of rows that belong to several exchanges; raises whatever the function raises."""

    def alone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results of one exchange's rows, with the function's policy for failing rows. Raises UserError."""

    def warm_up(self) -> None:
        """Run the author's warm-up before the first rows arrive; raises whatever the function raises."""


class BatchedFunction:
    """Function whose author has asked for batches that join the rows of many exchanges."""

    def __init__(self, function: Function[Any, Any], batching: Batching) -> None:
        """Wrap a function that returns one value per row; `batching` contains its author's settings."""
        self._function = function
        self.batching = batching
        self.name = function.name
        self.version = function.version
        self.argument_schema: pa.Schema = function.argument_schema
        """Schema of every batch that a model process receives."""
        self.result_schema: pa.Schema = function.result_schema
        """Schema of every batch that a model process returns."""
        self.is_deterministic = function.deterministic
        """Whether the same rows give the same results. If so, another process may run rows again after a crash."""

    def check(self, schema: pa.Schema) -> None:
        """Raise ProtocolError unless the columns of `schema` can be arguments."""
        self._function.arguments.check(schema)

    def load(self) -> LoadedModel:
        """Construct the model; raises whatever the constructor raises."""
        return cast(LoadedModel, load(self._function, explain))

    def no_results(self) -> pa.RecordBatch:
        """Return a result batch without rows."""
        return pa.RecordBatch.from_pylist([], schema=self.result_schema)
