# SPDX-License-Identifier: Apache-2.0
"""Tables with dictionary-encoded columns, as pandas, polars and DuckDB make them, sent by a plain Flight client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.support.pool import LocalPool

TEXTS = ["red", "green", None, "a color with a name that is longer than a view", "red"]
PLAIN = pa.table({"color": TEXTS})


def pandas_categorical() -> pa.Table:
    return pa.Table.from_pandas(pd.DataFrame({"color": pd.Categorical(TEXTS)}))


def pandas_categorical_in_parts() -> pa.Table:
    """Return parts with different categories: Flight sends a dictionary before each batch."""
    parts = [pd.DataFrame({"color": pd.Categorical(TEXTS[start : start + 2])}) for start in range(0, len(TEXTS), 2)]
    return pa.concat_tables(map(pa.Table.from_pandas, parts))


def polars_categorical() -> pa.Table:
    return pl.DataFrame({"color": pl.Series(TEXTS, dtype=pl.Categorical)}).to_arrow()


def polars_enum() -> pa.Table:
    colors = [text for text in dict.fromkeys(TEXTS) if text is not None]
    return pl.DataFrame({"color": pl.Series(TEXTS, dtype=pl.Enum(colors))}).to_arrow()


def polars_without_a_copy() -> pa.Table:
    """Return a table made through the C interface, which passes text as views."""
    return pa.table(pl.DataFrame({"color": pl.Series(TEXTS, dtype=pl.Categorical)}))


def duckdb_enum() -> pa.Table:
    plain = PLAIN
    colors = ", ".join(f"'{text}'" for text in dict.fromkeys(TEXTS) if text is not None)
    assert plain.num_rows == len(TEXTS)
    return duckdb.sql(f"select color::enum({colors}) as color from plain").to_arrow_table()


TABLES: list[Callable[[], pa.Table]] = [
    pandas_categorical,
    pandas_categorical_in_parts,
    polars_categorical,
    polars_enum,
    polars_without_a_copy,
    duckdb_enum,
]


@pytest.fixture
def client(pool: LocalPool) -> Iterator[flight.FlightClient]:
    with flight.connect(f"grpc://{pool.tcp_address}") as client:
        yield client


def called(client: flight.FlightClient, function: str, table: pa.Table, rows_a_batch: int = 2) -> pa.Table:
    descriptor = flight.FlightDescriptor.for_path(function)
    writer, reader = client.do_exchange(descriptor, flight.FlightCallOptions(timeout=60))
    with writer:
        writer.begin(table.schema)
        for batch in table.to_batches(max_chunksize=rows_a_batch):
            writer.write_batch(batch)
        writer.done_writing()
        return reader.read_all()


@pytest.mark.parametrize("made", TABLES)
@pytest.mark.parametrize("function", ["echo", "builtin_echo"])
def test_a_function_gets_the_values_and_answers_with_plain_columns(
    client: flight.FlightClient, function: str, made: Callable[[], pa.Table]
) -> None:
    table = made()
    assert pa.types.is_dictionary(table.schema.field("color").type)
    answer = called(client, function, table)
    assert answer.column(0).to_pylist() == TEXTS
    assert not pa.types.is_dictionary(answer.schema.field(0).type)


def test_lists_of_categories_of_polars(client: flight.FlightClient) -> None:
    lists = [["red", "green"], [], None, ["red"]]
    table = pl.DataFrame({"colors": pl.Series(lists, dtype=pl.List(pl.Categorical))}).to_arrow()
    answer = called(client, "echo", table)
    assert answer.schema.field("colors").type == pa.large_list(pa.large_string())
    assert answer.column(0).to_pylist() == lists


def test_categories_of_another_type_are_refused_as_plain_columns_are(client: flight.FlightClient) -> None:
    numbers = pa.Table.from_pandas(pd.DataFrame({"color": pd.Categorical([1, 2, 1])}))
    with pytest.raises(pa.ArrowInvalid, match="argument 'text' of function 'builtin_echo' is string, not int64"):
        called(client, "builtin_echo", numbers)


def test_intervals_of_pandas_are_refused_by_the_column_s_name(client: flight.FlightClient) -> None:
    table = pa.Table.from_pandas(pd.DataFrame({"bucket": pd.cut([1, 2, 3, 4], 2)}))
    with pytest.raises(pa.ArrowInvalid, match="column 'bucket' is a dictionary of struct<"):
        called(client, "echo", table)


@pytest.mark.usefixtures("pool_lives")
def test_a_large_value_in_very_many_rows_fails_the_call_and_nothing_else(client: flight.FlightClient) -> None:
    indexes = pa.repeat(pa.scalar(0, pa.int8()), 1_000_000)
    table = pa.table({"x": pa.DictionaryArray.from_arrays(indexes, pa.array(["x" * (1 << 20)]))})
    with pytest.raises(pa.ArrowInvalid, match="bytes or more once its dictionaries are decoded, the limit is"):
        called(client, "echo", table, rows_a_batch=len(indexes))
