# SPDX-License-Identifier: Apache-2.0
"""Loaded functions, ready to run in workers, model processes and tests. Classes have been constructed."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from updraft.functions.aggregates import LoadedAggregate
from updraft.functions.definition import Function, Kind, Loaded
from updraft.functions.failures import Explain, wrong_result
from updraft.functions.scalar import LoadedScalar
from updraft.functions.tables import LoadedTable


class LoadedAny(Loaded):
    """Function that takes a batch of any columns and returns a batch with as many rows."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of each batch of an exchange, all with one schema; raise UserError."""
        schema: pa.Schema | None = None
        for batch in batches:
            if schema is None:
                schema = self.function.results_for(batch.schema)
            result = self._called(batch)
            if schema is not None and not result.schema.equals(schema):
                raise wrong_result(
                    f"function {self.function.name!r} returned the columns ({_columns(result.schema)}), but has"
                    f" declared, or returned before, ({_columns(schema)})"
                )
            schema = result.schema
            yield result

    def _called(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        name = self.function.name
        try:
            result = self.code(batch)
        except BaseException as error:
            raise self.raised(error) from error
        if not isinstance(result, pa.RecordBatch):
            raise wrong_result(f"function {name!r} must return a RecordBatch, not {type(result).__name__}")
        if result.num_rows != batch.num_rows:
            raise wrong_result(f"function {name!r} returned {result.num_rows} rows for {batch.num_rows}")
        return result


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)


OneToOne: TypeAlias = LoadedAny | LoadedScalar
"""Loaded function that returns one result for each row."""


def load(function: Function[Any, Any], explain: Explain = lambda _: None) -> Loaded:
    """Load a function; raise whatever its constructor raises."""
    match function.kind:
        case Kind.ANY:
            return LoadedAny(function, explain)
        case Kind.SCALAR:
            return LoadedScalar(function, explain)
        case Kind.TABLE:
            return LoadedTable(function, explain)
        case Kind.AGGREGATE:
            return LoadedAggregate(function, explain)
