# SPDX-License-Identifier: Apache-2.0
"""Calls functions of any columns."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from updraft.functions.definition import Function
from updraft.functions.failures import Explain, raised, wrong_result
from updraft.functions.instance import Instance


class LoadedAny:
    """A function from batch to batch."""

    def __init__(self, function: Function[Any, Any], explain: Explain) -> None:
        self._function = function
        self._explain = explain
        self._instance = Instance(function)

    def warm_up(self) -> None:
        """Call the author's `warm_up`, if there is one."""
        self._instance.warm_up()

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For each batch its results; raises UserError."""
        for batch in batches:
            yield self._called(batch)

    def _called(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        name = self._function.name
        try:
            result = self._instance.call(batch)
        except BaseException as error:
            self._explain(error)
            raise raised(error) from error
        if not isinstance(result, pa.RecordBatch):
            raise wrong_result(f"function {name!r} must return a RecordBatch, not {type(result).__name__}")
        if result.num_rows != batch.num_rows:
            raise wrong_result(f"function {name!r} returned {result.num_rows} rows for {batch.num_rows}")
        return result
