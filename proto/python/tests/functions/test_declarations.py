# SPDX-License-Identifier: Apache-2.0
"""Functions that a decorator makes of definitions, and definitions that it refuses before any call."""

import dataclasses
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pyarrow as pa
import pytest

from updraft import function
from updraft.functions import Arrow, Batching, DeclarationError, ErrorPolicy, Function, Kind, NumPy, Pandas


@function(name="prices.discount", version="2", owner="pricing", tags=["money"], deterministic=False, on_error="null")
def discount(price: float, percent: float | None = 10.0) -> float:
    """The price without the discount.

    More of it.
    """
    return price * (1 - (percent or 0.0) / 100)


def test_a_function_says_what_its_author_said_of_it() -> None:
    assert (discount.name, discount.version, discount.owner, discount.tags) == (
        "prices.discount",
        "2",
        "pricing",
        ("money",),
    )
    assert discount.doc == "The price without the discount.\n\nMore of it."
    assert (discount.deterministic, discount.on_error, discount.kind) == (False, ErrorPolicy.NULL, Kind.SCALAR)
    assert discount.argument_schema == pa.schema(
        [pa.field("price", pa.float64(), nullable=False), pa.field("percent", pa.float64())]
    )
    assert discount.result_schema == pa.schema([pa.field("result", pa.float64())])
    assert discount.defaults == [10.0]


def test_a_description_stands_instead_of_the_docstring() -> None:
    @function(description="What callers read.")
    def described(x: int) -> int:
        """Text for maintainers of the code."""
        return x

    assert described.doc == "What callers read."


def test_a_function_is_called_as_if_it_had_not_been_decorated() -> None:
    assert (discount(200.0), discount(200.0, percent=50.0)) == (180.0, 100.0)
    assert discount.__name__ == "discount"


def test_what_is_not_said_has_a_default() -> None:
    @function
    def plain(x: int) -> int:
        return x

    assert (plain.name, plain.version, plain.doc, plain.tags, plain.owner) == ("plain", "1", "", (), "")
    assert (plain.deterministic, plain.on_error) == (True, ErrorPolicy.RAISE)
    assert (plain.loads_in, plain.concurrency, plain.load_timeout_seconds) == ("worker", 32, None)
    assert plain.result_schema == pa.schema([pa.field("result", pa.int64(), nullable=False)])


def test_a_schema_replaces_hints_and_the_code_gets_arrow() -> None:
    @function(arguments=pa.schema([pa.field("x", pa.int8(), nullable=False)]), result=pa.field("y", pa.int16()))
    def widened(x):  # type: ignore[no-untyped-def]  # that is what the schema is for
        return x.cast(pa.int16())

    assert widened.argument_schema == pa.schema([pa.field("x", pa.int8(), nullable=False)])
    assert widened.result_schema == pa.schema([pa.field("result", pa.int16())])


def test_a_struct_of_value_and_error_is_never_null() -> None:
    @function(on_error="struct")
    def risky(x: int) -> int:
        return x

    assert risky.result_schema == pa.schema(
        [pa.field("result", pa.struct({"value": pa.int64(), "error": pa.string()}), nullable=False)]
    )


def test_the_author_of_plain_functions_waits_for_pyarrow_alone() -> None:
    loaded = (
        "import sys; from updraft import function; print([m for m in ('pandas', 'google', 'grpc') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True).strip() == "[]"


def decorated(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator without its types, because the type checker refuses many of these definitions too."""
    decorate: Any = function
    return lambda code: decorate(**options)(code)


def no_hint(x) -> int:  # type: ignore[no-untyped-def]  # that is the error
    return 1


def no_result(x: int):  # type: ignore[no-untyped-def]  # that is the error
    return x


def variadic(*x: int) -> int:
    return 1


def keyword_only(*, x: int) -> int:
    return x


def mixed(x: int, y: Arrow[int]) -> Arrow[int]:
    return y


def changed_form(x: Arrow[int]) -> Pandas[int]:
    return x


def arrow_of_nothing() -> Arrow[int]:
    return pa.array([1])


async def generated(x: int) -> AsyncIterator[int]:
    yield x


def iterator_of_values(x: Iterator[int]) -> Iterator[int]:
    return x


def null_in_numpy(x: NumPy[int | None]) -> NumPy[int]:
    return x


@dataclasses.dataclass
class Counted:
    count: int


def null_inside_numpy(x: NumPy[list[int | None]]) -> NumPy[int]:
    return x


def null_struct_in_numpy(x: NumPy[Counted | None]) -> NumPy[int]:
    return x


def wrong_default(x: int = 1.5) -> int:  # type: ignore[assignment]  # that is the error
    return x


def null_default(x: "int" = None) -> int:  # type: ignore[assignment]  # noqa: RUF013 - that is the error
    return x


CODED = pa.dictionary(pa.int32(), pa.string())


def coded(x: Arrow[str]) -> Arrow[Annotated[str, CODED]]:
    return x.dictionary_encode()


def coded_inside(x: str) -> list[Annotated[str, CODED]]:
    return [x]


def coded_argument(x: Arrow[Annotated[str, CODED]]) -> Arrow[str]:
    return x.dictionary_decode()


async def awaited_columns(x: Arrow[int]) -> Arrow[int]:
    return x


def good(x: int) -> int:
    return x


class Model:
    def __call__(self, x: int) -> int:
        return x


class NotCallable:
    pass


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no_hint": (no_hint, {}, "argument 'x' of function 'no_hint' has no type hint"),
    "no_result": (no_result, {}, "has no hint for its result"),
    "variadic": (variadic, {}, r"takes \*x"),
    "keyword_only": (keyword_only, {}, "by keyword only"),
    "mixed": (mixed, {}, "mixes forms"),
    "changed_form": (changed_form, {}, "use one form for both"),
    "arrow_of_nothing": (arrow_of_nothing, {}, "how many values"),
    "async_generator": (generated, {}, "async generator"),
    "iterator_of_values": (iterator_of_values, {}, "iterator of single values"),
    "null_in_numpy": (null_in_numpy, {}, "NumPy has no null of int64"),
    "null_inside_numpy": (null_inside_numpy, {}, "nulls inside, and NumPy has no null of int64: use Pandas or Arrow"),
    "null_struct_in_numpy": (null_struct_in_numpy, {}, "nulls inside, and NumPy has no null of int64"),
    "wrong_default": (wrong_default, {}, "default of argument 'x'"),
    "null_default": (null_default, {}, "hint it as T | None"),
    "not_callable": (NotCallable, {}, "a class without __call__"),
    "empty_namespace": (good, {"name": "a..b"}, "dots between namespaces"),
    "odd_name": (good, {"name": "a-b"}, "letters, digits and _"),
    "pinned_name": (good, {"version": "1@2"}, "cannot follow @"),
    "no_version": (good, {"version": ""}, "version ''"),
    "odd_policy": (good, {"on_error": "ignore"}, '"raise", "null" or "struct"'),
    "odd_load": (good, {"load": "driver"}, '"worker" or "zygote"'),
    "no_concurrency": (good, {"concurrency": 0}, "at least 1"),
    "other_names": (good, {"arguments": pa.schema({"y": pa.int64()})}, "arguments= says"),
    "no_schema": (good, {"arguments": {"x": pa.int64()}}, "pyarrow.Schema"),
    "odd_result": (good, {"result": int}, "pyarrow.DataType or pyarrow.Field"),
    "negative_load_timeout": (good, {"load_timeout_seconds": -1.0}, "load_timeout_seconds .* 0 or more seconds"),
    "no_load_timeout": (good, {"load_timeout_seconds": float("nan")}, "load_timeout_seconds .* 0 or more seconds"),
    "two_load_timeouts": (
        good,
        {"load_timeout_seconds": 1.0, "batching": Batching()},
        "set load_timeout_seconds of Batching instead",
    ),
    "coded": (coded, {}, "'result' of function 'coded' is dictionary<.*: dictionaries cannot be sent"),
    "coded_inside": (coded_inside, {}, "declare the type of their values"),
    "coded_schema": (good, {"arguments": pa.schema({"x": pa.int64()}), "result": CODED}, "dictionaries cannot be sent"),
    "coded_argument": (coded_argument, {}, "'x' of function 'coded_argument' is dictionary<"),
    "zygote_of_no_class": (
        good,
        {"load": "zygote"},
        "is not a class, so there is nothing to load: make it a class, or leave",
    ),
    "zygote_of_a_batched": (Model, {"load": "zygote", "batching": Batching()}, 'leave load="zygote" out'),
    "load_timeout_of_no_class": (good, {"load_timeout_seconds": 1.0}, "or leave load_timeout_seconds out"),
    "concurrency_of_no_async": (good, {"concurrency": 32}, "is not async: make it async, or leave concurrency out"),
    "concurrency_of_columns": (awaited_columns, {"concurrency": 2}, "once for a whole batch: take plain values"),
    "async_batching": (generated, {"batching": Batching()}, "async"),
}


@pytest.mark.parametrize("definition", REFUSED)
def test_a_definition_that_no_pool_could_call_is_refused_when_it_is_made(definition: str) -> None:
    code, options, reason = REFUSED[definition]
    with pytest.raises(DeclarationError, match=reason):
        decorated(**options)(code)


def test_an_unknown_option_is_refused_by_python_and_by_the_type_checker() -> None:
    with pytest.raises(TypeError, match=r"unknown options of a function: \['nmae'\]; it has .*'name'"):
        function(nmae="discount")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'on_error'"):
        function.table(on_error="null")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'arguments'"):
        function.aggregate(arguments=None)  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="on_error"):
        function(on_error="none")(good)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "values",
    [
        {"rows": 0},
        {"replicas": 0},
        {"wait_seconds": -1.0},
        {"timeout_seconds": math.nan},
        {"load_timeout_seconds": math.nan},
        {"device": "tpu"},
    ],
)
def test_batches_that_make_no_sense_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Batching"):
        Batching(**values)


def test_tables_and_states_of_dictionaries_are_refused_too() -> None:
    def table(x: Arrow[str]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"y": x.dictionary_encode()})

    class Last:
        def start(self) -> Annotated[str, CODED]:
            return ""

        def accumulate(self, state: Annotated[str, CODED], x: str) -> Annotated[str, CODED]:
            return x

        def merge(self, left: Annotated[str, CODED], right: Annotated[str, CODED]) -> Annotated[str, CODED]:
            return right

        def finish(self, state: Annotated[str, CODED]) -> str:
            return state

    with pytest.raises(DeclarationError, match="'y' of function 'table' is dictionary<"):
        function.table(result=pa.schema({"y": CODED}))(table)
    with pytest.raises(DeclarationError, match="'state' of function 'Last' is dictionary<"):
        function.aggregate(Last)


def test_a_class_that_is_a_function_is_an_object_of_its_own() -> None:
    @function
    class Added:
        def __init__(self) -> None:
            self.offset = 5

        def __call__(self, x: int) -> int:
            return x + self.offset

    assert isinstance(Added, Function)
    assert Added()(1) == 6


def test_what_a_class_has_of_its_own_says_nothing_of_the_function() -> None:
    @function
    class Model:
        version = "of the weights"
        results = 7
        threshold = 0.5

        def __call__(self, x: int) -> int:
            return x

    model: Any = Model
    assert (model.version, model.threshold, model.target.version) == ("1", 0.5, "of the weights")
    assert model.result_schema == pa.schema([pa.field("result", pa.int64(), nullable=False)])
    assert not hasattr(model, "nothing_of_that_name")
