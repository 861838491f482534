# SPDX-License-Identifier: Apache-2.0
"""Loaded functions: a class is constructed and ready to run, in workers, model processes and tests."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from updraft.functions.aggregates import LoadedAggregate
from updraft.functions.any_columns import LoadedAny
from updraft.functions.definition import Function, Kind
from updraft.functions.failures import Explain
from updraft.functions.scalar import LoadedScalar
from updraft.functions.tables import LoadedTable


class Loaded(Protocol):
    """Loaded function of any kind."""

    def warm_up(self) -> None:
        """Call the author's `warm_up`, if there is one; raise whatever that raises."""


class OneToOne(Loaded, Protocol):
    """Loaded function that returns one result for each row."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of each checked batch, in order; raise UserError. May take batches ahead."""


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
