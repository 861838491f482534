# SPDX-License-Identifier: Apache-2.0
"""Functions that give any number of rows for each row."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from updraft.errors import ProtocolError, UserError
from updraft.functions import Arrow, DeclarationError, Function, function
from updraft.functions.loaded import load as loaded
from updraft.functions.tables import LoadedTable
from updraft.testing import load, table


class Word(NamedTuple):
    word: str
    length: int


@dataclasses.dataclass
class WordClass:
    word: str
    length: int


class WordDict(TypedDict):
    word: str
    length: int


WORDS = pa.schema([pa.field("word", pa.string(), nullable=False), pa.field("length", pa.int64(), nullable=False)])


@function.table
def named_tuples(text: str) -> Iterator[Word]:
    """The words of a text."""
    for word in text.split():
        yield Word(word, len(word))


@function.table
def dataclasses_(text: str) -> Iterator[WordClass]:
    return (WordClass(word, len(word)) for word in text.split())


@function.table
def typed_dicts(text: str) -> Iterator[WordDict]:
    return iter([{"word": word, "length": len(word)} for word in text.split()])


@function.table(result=WORDS)
def arrow(text: Arrow[str]) -> Iterator[pa.RecordBatch]:
    words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text)).flatten()
    words = words.filter(pc.not_equal(words, ""))
    yield pa.record_batch({"word": words, "length": pc.utf8_length(words).cast(pa.int64())})


@function.table
class Loaded:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> Iterator[Word]:
        self.calls += 1
        return (Word(word, self.calls) for word in text.split())


FORMS: list[Function[..., Any]] = [named_tuples, dataclasses_, typed_dicts, arrow]
TEXTS = ["a bc", "", "def"]


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
@pytest.mark.parametrize("batch_rows", [0, 1, 2])
def test_every_form_gives_the_same_rows(form: Any, batch_rows: int) -> None:
    assert form.result_schema == WORDS
    rows = table(form, TEXTS, batch_rows=batch_rows)
    assert rows.schema == WORDS
    assert rows.to_pylist() == [
        {"word": "a", "length": 1},
        {"word": "bc", "length": 2},
        {"word": "def", "length": 3},
    ]


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_a_caller_who_joins_learns_which_row_gave_which(form: Any) -> None:
    (output,) = joined(form, TEXTS)
    assert (output.batch.column(0).to_pylist(), list(output.row_ends)) == (["a", "bc", "def"], [2, 2, 3])


def test_the_output_of_a_row_may_be_larger_than_a_batch() -> None:
    @function.table
    def many(count: int) -> Iterator[int]:
        return iter(range(count))

    @function.table(result=pa.schema({"result": pa.int64()}))
    def many_columns(count: Arrow[int]) -> Iterator[pa.RecordBatch]:
        for start in range(0, count[0].as_py(), 5000):
            yield pa.record_batch({"result": pa.array(range(start, start + 5000), pa.int64())})

    for function_ in (many, many_columns):
        outputs = joined(function_, [20_000, 5000])
        assert len(outputs) > 1
        ends, before = [], 0
        for output in outputs:
            ends += [before + end for end in output.row_ends]
            before += output.batch.num_rows
        assert ends == [20_000, 25_000]


def test_a_class_is_constructed_once() -> None:
    loaded_once = load(Loaded)
    rows = [loaded_once.table(["a"]).to_pylist(), loaded_once.table(["b"]).to_pylist()]
    assert rows == [[{"word": "a", "length": 1}], [{"word": "b", "length": 2}]]


def test_rows_of_single_values_are_a_column() -> None:
    @function.table
    def numbers() -> Iterator[int]:
        return iter([1, 2])

    assert table(numbers, rows=2).to_pydict() == {"result": [1, 2, 1, 2]}


def other_class(text: str) -> Iterator[Word]:
    yield (text, 1)  # type: ignore[misc]  # that is the error


def missing_name(text: str) -> Iterator[WordDict]:
    yield {"word": text}  # type: ignore[typeddict-item]  # that is the error


class LazyWord(WordClass):
    @property
    def length(self) -> int:
        raise RuntimeError("not counted")

    @length.setter
    def length(self, value: int) -> None:
        pass


def unreadable(text: str) -> Iterator[WordClass]:
    yield LazyWord(text, 1)


class UncountedWord(LazyWord):
    @property
    def length(self) -> int:
        return {"words": 1}["lengths"]

    @length.setter
    def length(self, value: int) -> None:
        pass


def unreadable_by_key(text: str) -> Iterator[WordClass]:
    yield UncountedWord(text, 1)


def other_type(text: str) -> Iterator[Word]:
    yield Word(text, 1.5)  # type: ignore[arg-type]  # that is the error


def nothing(text: str) -> Iterator[Word]:
    return None  # type: ignore[return-value]  # that is the error


def late(text: str) -> Iterator[Word]:
    yield Word(text, 1)
    raise ValueError("late")


WRONG = {
    other_class: "returned a row of type tuple, not Word",
    missing_name: "returned a row without 'length'",
    unreadable: "returned a row that cannot be read: not counted",
    unreadable_by_key: "returned a row that cannot be read: 'lengths'",
    other_type: "'length' of function 'other_type' returned a value that does not fit int64",
    nothing: "'NoneType' object is not iterable",
    late: "ValueError: late",
}


@pytest.mark.parametrize("code", WRONG)
def test_what_goes_wrong_is_an_error_of_the_function(code: Any) -> None:
    with pytest.raises(UserError, match=WRONG[code]):
        table(function.table(code), ["a"])


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (pa.record_batch({"length": [1], "word": ["a"]}), "returned the columns"),
        (pa.record_batch({"word": ["a"], "length": [1.0]}), "returned double, but has declared int64"),
        (["a"], "must return pyarrow.RecordBatches, not str"),
    ],
)
def test_columns_have_to_be_those_that_were_declared(batch: Any, reason: str) -> None:
    @function.table(result=WORDS)
    def columns(text: Arrow[str]) -> Iterator[pa.RecordBatch]:
        yield from ([batch] if isinstance(batch, pa.RecordBatch) else batch)

    with pytest.raises(UserError, match=reason):
        table(columns, ["a"])


def test_arguments_are_checked_as_those_of_every_function() -> None:
    with pytest.raises(ProtocolError, match="is string, not int64"):
        table(named_tuples, pa.array([1]))


def test_a_definition_that_says_no_columns_is_refused() -> None:
    def no_schema(text: Arrow[str]) -> Iterator[pa.RecordBatch]:
        return iter(())

    def no_iterator(text: str) -> Word:
        return Word(text, 1)

    async def awaited(text: str) -> Iterator[Word]:
        return iter(())

    for code, reason in [(no_schema, "pyarrow.Schema"), (no_iterator, "as an Iterator"), (awaited, "is async")]:
        with pytest.raises(DeclarationError, match=reason):
            function.table(code)


def joined(code: Any, *columns: Any) -> list[Any]:
    function_ = loaded(code)
    assert isinstance(function_, LoadedTable)
    arguments = code.argument_schema
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, arguments, strict=True)], schema=arguments
    )
    return list(function_.run_joined(batch))
