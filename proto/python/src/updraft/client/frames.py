# SPDX-License-Identifier: Apache-2.0
"""Tables that callers pass: dictionaries of columns, pandas frames, any table with the Arrow PyCapsule interface."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

_EXPECTED = (
    "give a dictionary of columns, or a table that has the Arrow PyCapsule interface, such as a pyarrow.Table, "
    "a pandas or a polars DataFrame"
)


@runtime_checkable
class ArrowTable(Protocol):
    """Any table with the Arrow PyCapsule interface: pyarrow's, pandas', polars', DuckDB's and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as a stream of record batches."""


Frame = TypeVar("Frame", bound=ArrowTable)
Columns = Mapping[str, Sequence[Any]]
"""Columns by name: lists, or arrays of NumPy, pandas and Arrow."""


def in_pieces(data: Any) -> Any:
    """Return an iterable of tables: `data` itself, or the batches of a reader, or one table."""
    if isinstance(data, Mapping | pa.Table | pa.RecordBatch) or _library(data) in ("pandas", "polars"):
        return [data]
    # Read other tables batch by batch: readers and results of databases may be larger than memory, or endless.
    return pa.RecordBatchReader.from_stream(data) if isinstance(data, ArrowTable) else data


def as_table(data: Any) -> pa.Table:
    """Return a frame as an Arrow table; raises TypeError for other data, ValueError if columns differ in length."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return _table_of(data)
    if _library(data) == "pandas" and hasattr(data, "columns"):
        # An index is not an argument; `like` restores it.
        return pa.Table.from_pandas(data, preserve_index=False)
    if isinstance(data, ArrowTable):
        return pa.RecordBatchReader.from_stream(data).read_all()
    raise TypeError(f"{type(data).__name__} is not a table: {_EXPECTED}")


def like(data: Any, table: pa.Table, *, same_rows: bool) -> Any:
    """Return `table` as a frame of the library of `data`, if that is pandas or polars; else return `table`.

    `same_rows` says that `table` has one row for each row of `data`. If so, a pandas frame receives the index of
    `data`.
    """
    match _library(data):
        case "pandas":
            frame = table.to_pandas()
            if same_rows:
                frame.index = data.index
            return frame
        case "polars":
            return type(data)(table)
    return table


def _library(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def _table_of(columns: Mapping[str, Any]) -> pa.Table:
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise TypeError(
                f"column {name!r} is a {type(values).__name__}: give a sequence with one value for each row"
            )
        is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
        arrays[name] = values if is_arrow else pa.array(values)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns differ in length: {lengths}")
    return pa.table(arrays)
