# SPDX-License-Identifier: Apache-2.0
"""A batched function, as its model process and the workers that call it need it."""

from typing import Any, Protocol, cast

import pyarrow as pa

from updraft.functions import Batching, Function
from updraft.functions.loaded import load
from updraft_server.worker.explanations import explain


class LoadedModel(Protocol):
    """What the function's constructor has made, in its model process: `updraft.functions.scalar.LoadedScalar`."""

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The results of rows that belong to several exchanges; raises whatever the function raises."""

    def alone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The results of rows of one exchange, with the function's policy for rows that fail; raises UserError."""

    def warm_up(self) -> None:
        """Whatever the author wants done before the first rows come; raises whatever the function raises."""


class BatchedFunction:
    """A function whose author asked for batches of rows of many exchanges."""

    def __init__(self, function: Function[Any, Any], batching: Batching) -> None:
        """`batching` is that of the function, which gives a value for each row."""
        self._function = function
        self.batching = batching
        self.name = function.name
        self.version = function.version
        self.argument_schema: pa.Schema = function.argument_schema
        """Of every batch that a model process gets."""
        self.result_schema: pa.Schema = function.result_schema
        """Of every batch that it gives."""
        self.is_deterministic = function.deterministic
        """Whether the same rows give the same results, so that they may be called again when their process died."""

    def check(self, schema: pa.Schema) -> None:
        """Raises ProtocolError unless columns of these types can be arguments."""
        self._function.arguments.check(schema)

    def load(self) -> LoadedModel:
        """Make the model; raises whatever the constructor raises."""
        return cast(LoadedModel, load(self._function, explain))

    def no_results(self) -> pa.RecordBatch:
        """Those of no rows."""
        return pa.RecordBatch.from_pylist([], schema=self.result_schema)
