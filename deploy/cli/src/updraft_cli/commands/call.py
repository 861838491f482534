# SPDX-License-Identifier: Apache-2.0
"""`updraft call`: call a registered function with values from the command line, or with the rows of a file."""

import contextlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator
from pydantic_settings import CliPositionalArg

from updraft.client import PoolClient
from updraft.client.called_function import CalledFunction
from updraft.client.credentials import CredentialsError
from updraft.client.log_key import make_secret
from updraft.service.command_line import Verbatim
from updraft.service.settings import setting
from updraft_cli.options import ClientOptions, log_key_file
from updraft_cli.output import print_line
from updraft_cli.progress import Progress
from updraft_cli.table_files import ENDINGS, lines_of, open_table, table_writer


class CallError(Exception):
    """Raised when the arguments of a call do not fit its function."""


class Call(ClientOptions):
    """Call a function of a pool, once or for each row of a file, and print its results or write them to a file.

    Values of --arg are read as the argument's type: text as it is, lists and structs as JSON. A column of the file
    becomes the argument of the same name; columns without such an argument are not sent. The environment variables
    UPDRAFT_CLIENT_ENDPOINT, UPDRAFT_CLIENT_TOKEN_FILE and so on replace missing options.
    """

    examples: ClassVar[str] = """examples:
  updraft call greeting --arg name=Ada --endpoint grpc://127.0.0.1:8815
  updraft call greeting@1 --input people.parquet --arg word=Welcome --output greetings.parquet
  updraft call mean --input prices.csv --group-by city
"""

    name: CliPositionalArg[str] = setting("The function's name, or NAME@VERSION for one of its versions.")
    arg: list[Verbatim] = setting("NAME=VALUE of an argument; repeat the option for others.", default=[])
    input: Path | None = setting(f"File with a row for each call; its name ends with {ENDINGS}.", default=None)
    output: Path | None = setting(
        "File for the results, in the format of its ending; defaults to lines on standard output.", default=None
    )
    group_by: list[Verbatim] = setting(
        "Column that forms an aggregate's groups; repeat the option for others.", default=[]
    )
    keep: bool = setting("Write the input's columns before the results.", default=False)
    tenant: str = setting("Tenant used for fair scheduling, if the token does not set it.", default="")
    timeout_seconds: float | None = setting("Deadline of the whole call.", default=None, unit="seconds", gt=0)
    progress: bool = setting(
        "Show a progress bar on a terminal while a file is read, unless the terminal shows results too.", default=True
    )

    @model_validator(mode="after")
    def _fits(self) -> "Call":
        for text in self.arg:
            if "=" not in text:
                raise ValueError(f"--arg {text}: expected NAME=VALUE")
        names = [text.partition("=")[0] for text in self.arg]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"--arg {name} is given twice: use --input for several rows")
        if self.keep and self.input is None:
            raise ValueError("--keep needs --input")
        return self

    def cli_cmd(self) -> None:
        """Make the call."""
        # The call works without a log key, and this user may have no directory for one.
        with contextlib.suppress(CredentialsError):
            make_secret(log_key_file())
        try:
            with PoolClient(**self.connection("tenant", "timeout_seconds")) as client:
                self._call(client)
        except (TypeError, ValueError) as error:
            raise CallError(str(error)) from error

    def _call(self, client: PoolClient) -> None:
        description = client.describe(self.name)
        function = CalledFunction(description, self.group_by)
        # Pin the described version, because values are read by its types.
        pinned = f"{description.name}@{description.version}" if description.version else description.name
        if self.keep and not function.is_one_to_one:
            raise CallError(f"--keep: {function.name} does not have one result for each row")
        values = {name: _value(text, function, name) for name, _, text in (arg.partition("=") for arg in self.arg)}
        if self.input is not None:
            self._call_with_a_file(client, pinned, function, values)
            return
        row = _one_row()
        for column, value in values.items():
            row = row.append_column(column, pa.repeat(value, 1))
        with self._writer() as write:
            write(client.call(pinned, row, group_by=self.group_by))

    def _call_with_a_file(
        self, client: PoolClient, name: str, function: CalledFunction, values: dict[str, pa.Scalar]
    ) -> None:
        assert self.input is not None
        file = open_table(self.input, lambda column: _type_of(function.argument(column)))
        known = function.argument_names
        names = [column for column in file.names if (known is None or column in known) and column not in values]
        for column in function.required:
            if column not in names and column not in values:
                raise CallError(
                    f"{self.input} has no column {column!r}, which {function.name} needs: it has "
                    f"{', '.join(file.names)}"
                )
        rows: deque[pa.Table] = deque()

        def tables() -> Iterator[pa.Table]:
            for table in file.batches(file.names if self.keep else names):
                if self.keep:
                    rows.append(table)
                arguments = table.select(names)
                for column, value in values.items():
                    arguments = arguments.append_column(column, pa.repeat(value, table.num_rows))
                # An aggregate returns its results at the end, so the bar shows the rows read.
                if not function.is_one_to_one:
                    progress.add(table.num_rows)
                yield arguments

        # If results go to a terminal, the bar would appear between them.
        shows_bar = self.progress and (self.output is not None or not sys.stdout.isatty())
        is_empty = True
        with self._writer() as write, Progress(file.rows, is_wanted=shows_bar) as progress:
            for results in client.stream(name, tables(), group_by=self.group_by):
                is_empty = False
                write(_beside(_taken(rows, results.num_rows), results) if self.keep else results)
                if function.is_one_to_one:
                    progress.add(results.num_rows)
            if is_empty and (nothing := function.empty_results(file.schema)) is not None:
                # Write a table without rows, so that the output has its columns.
                write(_beside(file.schema.empty_table(), nothing) if self.keep else nothing)

    @contextlib.contextmanager
    def _writer(self) -> Iterator[Callable[[pa.Table], None]]:
        if self.output is not None:
            with table_writer(self.output) as write:
                yield write
            return

        def show(table: pa.Table) -> None:
            for line in lines_of(table):
                print_line(line)

        yield show


def _type_of(field: pa.Field | None) -> pa.DataType | None:
    return None if field is None else field.type


def _value(text: str, function: CalledFunction, name: str) -> pa.Scalar:
    """Return a value of the command line in the type of its argument; raises CallError."""
    field = function.argument(name)
    kind = pa.string() if field is None else field.type
    try:
        if pa.types.is_nested(kind):
            return pa.array([json.loads(text)], kind)[0]
        return pc.cast(pa.scalar(text), kind)
    except (pa.ArrowException, ValueError) as error:
        raise CallError(f"--arg {name}: {text!r} is not a value of type {kind}: {error}") from None


def _one_row() -> pa.Table:
    """Return a table of one row without columns."""
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))])


def _taken(tables: deque[pa.Table], rows: int) -> pa.Table:
    """Remove the next rows from the tables and return them."""
    taken: list[pa.Table] = []
    while rows:
        first = tables.popleft()
        taken.append(first.slice(0, rows))
        if first.num_rows > rows:
            tables.appendleft(first.slice(rows))
        rows -= taken[-1].num_rows
    return pa.concat_tables(taken)


def _beside(columns: pa.Table, results: pa.Table) -> pa.Table:
    for field in results.schema:
        if field.name in columns.column_names:
            raise CallError(f"--keep: the input already has a column {field.name!r}: rename it")
        columns = columns.append_column(field, results.column(field.name))
    return columns
