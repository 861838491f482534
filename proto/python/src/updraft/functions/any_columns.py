# SPDX-License-Identifier: Apache-2.0
"""Execution of functions that take any columns."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from updraft.functions.definition import Function
from updraft.functions.failures import Explain, raised, wrong_result
from updraft.functions.instance import Instance


class LoadedAny:
    """Function that takes a batch of any columns and returns a batch with as many rows."""

    def __init__(self, function: Function[Any, Any], explain: Explain) -> None:
        self._function = function
        self._explain = explain
        self._instance = Instance(function)

    def warm_up(self) -> None:
        """Call the author's `warm_up`, if there is one."""
        self._instance.warm_up()

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of each batch of an exchange, all with one schema; raise UserError."""
        schema: pa.Schema | None = None
        for batch in batches:
            if schema is None:
                schema = self._function.results_for(batch.schema)
            result = self._called(batch)
            if schema is not None and not result.schema.equals(schema):
                raise wrong_result(
                    f"function {self._function.name!r} returned the columns ({_columns(result.schema)}), but has"
                    f" declared, or returned before, ({_columns(schema)})"
                )
            schema = result.schema
            yield result

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


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)
