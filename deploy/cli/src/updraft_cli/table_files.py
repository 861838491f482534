# SPDX-License-Identifier: Apache-2.0
"""Tables in files, read and written in batches: Parquet, CSV, JSON Lines and Arrow, by the ending of their names."""

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

ENDINGS = ".parquet, .csv, .jsonl (or .ndjson) and .arrow (or .feather)"
_BATCH_ROWS = 1 << 16
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class TableFileError(Exception):
    """Raised when a file cannot be read or written as a table; the message names the file."""


@dataclass(frozen=True, slots=True)
class TableInput:
    """Open table."""

    schema: pa.Schema
    """All its columns; in a text format, with types inferred from the first rows."""

    rows: int | None
    """Number of rows; None if the number is unknown until the whole file has been read."""

    batches: Callable[[Sequence[str]], Iterator[pa.Table]]
    """Function that reads the named columns."""

    @property
    def names(self) -> list[str]:
        """Names of all its columns."""
        return list(self.schema.names)


def open_table(path: Path, types: Callable[[str], pa.DataType | None]) -> TableInput:
    """Open a file; raises TableFileError.

    Args:
        path: The file.
        types: Function that returns the type of a column in a text format, or None to infer it.
    """
    with _errors_of(path):
        match _format_of(path):
            case "parquet":
                file = pa.parquet.ParquetFile(path)
                return TableInput(
                    file.schema_arrow,
                    file.metadata.num_rows,
                    lambda names: _read(path, file.iter_batches(_BATCH_ROWS, columns=list(names))),
                )
            case "csv":
                schema = pa.csv.open_csv(path).schema
                return TableInput(schema, None, lambda chosen: _read(path, _csv(path, chosen, types)))
            case "jsonl":
                schema = pa.json.open_json(path).schema
                return TableInput(schema, None, lambda chosen: _read(path, _json(path, chosen, types)))
            case _:
                reader = pa.ipc.open_file(pa.memory_map(str(path)))
                batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
                return TableInput(
                    reader.schema,
                    None,
                    lambda names: _read(path, (batch.select(list(names)) for batch in batches)),
                )


@contextlib.contextmanager
def table_writer(path: Path) -> Iterator[Callable[[pa.Table], None]]:
    """Return a function that appends a table to a new file, which replaces `path` when the block ends without error.

    Raises TableFileError.
    """
    kind = _format_of(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    open_writer: dict[str, Callable[[pa.Schema], Any]] = {
        "parquet": lambda schema: pa.parquet.ParquetWriter(partial, schema),
        "csv": lambda schema: pa.csv.CSVWriter(partial, schema),
        "jsonl": lambda _schema: _JsonLines(partial),
        "arrow": lambda schema: pa.ipc.new_file(str(partial), schema),
    }
    writer: Any = None
    with _errors_of(path):
        # Find out before a long call, not after it, whether a file can be created in the directory.
        partial.open("xb").close()

    def write(table: pa.Table) -> None:
        nonlocal writer
        with _errors_of(path):
            writer = writer or open_writer[kind](table.schema)
            writer.write_table(table)

    try:
        yield write
        with _errors_of(path):
            if writer is None:
                write(pa.table({}))
            writer.close()
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def lines_of(table: pa.Table) -> Iterator[str]:
    """Yield a line of JSON for each row: an object, or just the value if the table has one column.

    In a table of one column, text without control characters and line breaks is yielded as it is, not as JSON.
    """
    for row in table.to_pylist():
        (first, *others) = row.values()
        if others:
            yield _json_of(row)
        else:
            yield first if isinstance(first, str) and not _CONTROL.search(first) else _json_of(first)


def _json_of(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return json.dumps(value, default=str) if _CONTROL.search(text) else text


class _JsonLines:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write_table(self, table: pa.Table) -> None:
        self._file.writelines(f"{_json_of(row)}\n" for row in table.to_pylist())

    def close(self) -> None:
        self._file.close()


def _csv(path: Path, names: Sequence[str], types: Callable[[str], pa.DataType | None]) -> Iterator[pa.RecordBatch]:
    known = {name: kind for name in names if (kind := types(name)) is not None and not pa.types.is_nested(kind)}
    options = pa.csv.ConvertOptions(include_columns=list(names), column_types=known)
    yield from pa.csv.open_csv(path, convert_options=options)


def _json(path: Path, names: Sequence[str], types: Callable[[str], pa.DataType | None]) -> Iterator[pa.RecordBatch]:
    known = [pa.field(name, kind) for name in names if (kind := types(name)) is not None]
    options = pa.json.ParseOptions(explicit_schema=pa.schema(known), unexpected_field_behavior="infer")
    for batch in pa.json.open_json(path, parse_options=options):
        yield batch.select(list(names))


def _read(path: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    with _errors_of(path):
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _format_of(path: Path) -> str:
    match path.suffix.lower():
        case ".parquet":
            return "parquet"
        case ".csv":
            return "csv"
        case ".jsonl" | ".ndjson":
            return "jsonl"
        case ".arrow" | ".feather":
            return "arrow"
    raise TableFileError(f"{path}: the name of a table must end with {ENDINGS}")


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise TableFileError(f"{path}: {reason}") from None
