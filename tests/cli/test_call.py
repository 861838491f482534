# SPDX-License-Identifier: Apache-2.0
"""Command `updraft call`: functions of a pool, called with values and with files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.cli.conftest import Run
from tests.support.pool import LocalPool
from updraft_cli.progress import Progress
from updraft_cli.table_files import table_writer


@pytest.fixture
def call(functions_pool: LocalPool, typed: Run) -> Run:
    return lambda *arguments: typed("call", *arguments, "--endpoint", functions_pool.tcp_endpoint)


@pytest.mark.parametrize(
    ("arguments", "prints"),
    [
        (("hello@1", "--arg", "name=Ada"), "Hello, Ada!\n"),
        (("hello@1", "--arg", 'name=A, "b" [{é%20', "--arg", "word="), ', A, "b" [{é%20!\n'),
        (("hello", "--arg", "name=Ada"), "ADA\n"),
        (("total", "--arg", "prices=[1, 2.5]"), "3.5\n"),
        (("constant",), "ab\n"),
        (("constant", "--arg", "second=\n\x1b[2J\u0085é"), '"a\\n\\u001b[2J\\u0085\\u00e9"\n'),
        (
            ("words", "--arg", "text=a bb"),
            '{"row": 0, "word": "a", "length": 1}\n{"row": 0, "word": "bb", "length": 2}\n',
        ),
    ],
)
def test_values_are_read_as_the_arguments_types(call: Run, arguments: tuple[str, ...], prints: str) -> None:
    answer = call(*arguments)
    assert (answer.stdout, answer.stderr, answer.returncode) == (prints, "", 0)


def test_the_endpoint_is_found_in_the_environment(
    functions_pool: LocalPool, typed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = typed("call", "hello@1", "--arg", "name=Ada")
    assert answer.returncode == 2
    assert "name a pool with --endpoint, or set UPDRAFT_CLIENT_ENDPOINT" in answer.stderr
    monkeypatch.setenv("UPDRAFT_CLIENT_ENDPOINT", functions_pool.tcp_endpoint)
    assert typed("call", "hello@1", "--arg", "name=Ada").stdout == "Hello, Ada!\n"


def _write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "arrow"])
def test_a_file_becomes_a_file(call: Run, tmp_path: Path, ending: str) -> None:
    people = pa.table({"id": [1, 2], "name": ["007", "Grace"]})
    source, target = tmp_path / f"people.{ending}", tmp_path / f"said.{ending}"
    write: dict[str, Callable[[], object]] = {
        "parquet": lambda: pa.parquet.write_table(people, source),
        "csv": lambda: pa.csv.write_csv(people, source),
        "jsonl": lambda: source.write_text("".join(f"{json.dumps(row)}\n" for row in people.to_pylist())),
        "arrow": lambda: _write_arrow(people, source),
    }
    write[ending]()
    answer = call("hello@1", "--input", str(source), "--arg", "word=Hi", "--output", str(target), "--keep")
    assert (answer.stdout, answer.stderr, answer.returncode) == ("", "", 0)
    read = {
        "parquet": lambda: pa.parquet.read_table(target),
        "csv": lambda: pa.csv.read_csv(
            target, convert_options=pa.csv.ConvertOptions(column_types={"name": pa.string()})
        ),
        "jsonl": lambda: pa.Table.from_pylist([json.loads(line) for line in target.read_text().splitlines()]),
        "arrow": lambda: pa.ipc.open_file(target).read_all(),
    }[ending]()
    assert read.to_pydict() == {"id": [1, 2], "name": ["007", "Grace"], "result": ["Hi, 007!", "Hi, Grace!"]}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, target.name])


def test_a_large_file_keeps_its_rows_together(call: Run, tmp_path: Path) -> None:
    rows = 300_000
    source, target = tmp_path / "people.parquet", tmp_path / "said.parquet"
    pa.parquet.write_table(pa.table({"id": range(rows), "name": [str(row) for row in range(rows)]}), source)
    assert call("hello@2", "--input", str(source), "--output", str(target), "--keep").returncode == 0
    read = pa.parquet.read_table(target)
    assert read.column("result").to_pylist() == [str(row) for row in range(rows)]
    assert read.column("id").to_pylist() == list(range(rows))


@pytest.mark.parametrize("source", ["people.csv", "people.parquet"])
def test_a_file_without_rows_becomes_a_file_with_columns(call: Run, tmp_path: Path, source: str) -> None:
    people, target = tmp_path / source, tmp_path / "said.parquet"
    if people.suffix == ".csv":
        people.write_text("id,name\n")
    else:
        pa.parquet.write_table(pa.table({"id": [1], "name": ["Ada"]}).slice(0, 0), people)
    assert call("hello@1", "--input", str(people), "--output", str(target), "--keep").returncode == 0
    assert pa.parquet.read_table(target).to_pydict() == {"id": [], "name": [], "result": []}
    assert call("mean", "--input", str(people), "--output", str(target), "--arg", "value=1").returncode == 0
    assert pa.parquet.read_schema(target).names == ["result"]


def test_rows_count_even_if_the_command_line_has_all_arguments(call: Run, tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("id\n1\n2\n")
    assert call("hello@1", "--input", str(people), "--arg", "name=Ada").stdout == "Hello, Ada!\n" * 2
    assert call("constant", "--input", str(people)).stdout == "ab\n" * 2


def test_the_file_in_progress_is_nobody_elses(tmp_path: Path) -> None:
    target = tmp_path / "said.csv"
    with table_writer(target) as write:
        write(pa.table({"x": [1]}))
        (partial,) = tmp_path.iterdir()
        with table_writer(target) as other:
            other(pa.table({"x": [2]}))
        assert [partial, target] == sorted(tmp_path.iterdir())
    assert target.read_text() == '"x"\n1\n'


def test_a_failed_call_leaves_the_old_file(call: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "numbers.csv", tmp_path / "inverse.csv"
    source.write_text("x\n1\n0\n")
    target.write_text("before")
    answer = call("inverse", "--input", str(source), "--output", str(target))
    assert answer.returncode == 1
    assert answer.stderr.endswith("updraft: ZeroDivisionError: division by zero\n")
    assert "return 1 / x" in answer.stderr
    assert target.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2


def test_an_aggregate_reads_a_file_by_groups(call: Run, tmp_path: Path) -> None:
    source = tmp_path / "prices.csv"
    source.write_text("city,value,other\nRome,1,a\nOslo,5,b\nRome,2,c\n")
    printed = call("mean", "--input", str(source), "--group-by", "city").stdout
    assert sorted(map(json.loads, printed.splitlines()), key=lambda row: str(row["city"])) == [
        {"city": "Oslo", "result": 5.0},
        {"city": "Rome", "result": 1.5},
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("hello@1",), "column 'name' is missing: hello takes name, word"),
        (("hello@1", "--arg", "nme=Ada"), "hello has no argument 'nme'"),
        (("inverse", "--arg", "x=one"), "--arg x: 'one' is not a value of type int64"),
        (("inverse", "--arg", "x=1", "--arg", "x=2"), "--arg x is given twice"),
        (("inverse", "--arg", "x=1", "--output", "/nowhere/x.csv"), "/nowhere/x.csv: No such file or directory"),
        (("inverse", "--arg", "one"), "--arg one: expected NAME=VALUE"),
        (("nope", "--arg", "x=1"), "no function 'nope' is registered"),
        (("inverse", "--input", "{people}"), "has no column 'x', which inverse needs: it has name"),
        (("inverse", "--input", "none.csv"), "none.csv: "),
        (("inverse", "--input", "none.xls"), "none.xls: the name of a table must end with .parquet, .csv"),
        (("words", "--input", "{people}", "--keep"), "--keep: words does not have one result for each row"),
        (("words", "--arg", "text=a", "--keep"), "--keep needs --input"),
    ],
)
def test_a_mistake_is_explained_in_a_line(call: Run, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    people = tmp_path / "people.csv"
    people.write_text("name\nAda\n")
    answer = call(*(argument.format(people=people) for argument in arguments))
    assert answer.returncode in (1, 2)
    assert says in answer.stderr
    assert answer.stderr.startswith("updraft: ")
    assert len(answer.stderr.splitlines()) == 1


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_shows_the_share_and_the_rate() -> None:
    now = 0.0
    terminal = _Terminal()
    with Progress(1000, terminal, clock=lambda: now) as bar:
        now = 0.05
        bar.add(1)
        assert terminal.getvalue() == ""
        now = 2.0
        bar.add(499)
        assert bar.line() == "[###############---------------]  50%  500 of 1,000 rows  250 rows/s"
    assert terminal.getvalue().count("500 of 1,000 rows") == 2


def test_no_bar_is_drawn_where_no_terminal_is() -> None:
    plain = io.StringIO()
    now = 0.0
    with Progress(None, plain, clock=lambda: now) as bar:
        now = 2.0
        bar.add(500)
        assert bar.line() == "500 rows  250 rows/s"
    assert plain.getvalue() == ""
    terminal = _Terminal()
    with Progress(None, terminal, clock=lambda: now, is_wanted=False) as bar:
        now = 4.0
        bar.add(500)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_subcommands_and_options(typed: Run, shell: str) -> None:
    script = typed("completion", shell).stdout
    for name in ("call", "doctor", "--group-by", "--token-file"):
        assert name in script
