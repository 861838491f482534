# SPDX-License-Identifier: Apache-2.0
"""A function that is ready to be called: its class is constructed. Workers, model processes and tests call it so."""

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
    """A function of any kind."""

    def warm_up(self) -> None:
        """Call the author's `warm_up`, if there is one; raises whatever that raises."""


class OneToOne(Loaded, Protocol):
    """A function with as many results as there are rows."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For each checked batch its results, in order; raises UserError. May take batches ahead."""


def load(function: Function[Any, Any], explain: Explain = lambda _: None) -> Loaded:
    """Construct the function, ready to be called; raises whatever its constructor raises."""
    match function.kind:
        case Kind.ANY:
            return LoadedAny(function, explain)
        case Kind.SCALAR:
            return LoadedScalar(function, explain)
        case Kind.TABLE:
            return LoadedTable(function, explain)
        case Kind.AGGREGATE:
            return LoadedAggregate(function, explain)
