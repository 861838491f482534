# SPDX-License-Identifier: Apache-2.0
"""`@function`, `@function.table` and `@function.aggregate`: they make a `Function` of what an author has written."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

import pyarrow as pa

from updraft.functions.batching import Batching
from updraft.functions.declaration_error import DeclarationError
from updraft.functions.definition import ErrorPolicy, Function, Kind, Options, SchemaFunction
from updraft.functions.forms import Form
from updraft.functions.hints import Hinted, hinted, record_fields
from updraft.functions.signature import Signature, check_numpy, declared_signature, form_of, item_of

_P = ParamSpec("_P")
_R = TypeVar("_R")

_RESULT = "result"
_AGGREGATE_METHODS = ("start", "accumulate", "merge", "finish")


class FunctionDecorator:
    """Makes registered functions. Its only object is `updraft.function`."""

    @overload
    def __call__(self, target: Callable[_P, _R], /) -> Function[_P, _R]: ...

    @overload
    def __call__(
        self,
        /,
        *,
        name: str = ...,
        version: str = ...,
        description: str = ...,
        tags: Sequence[str] = ...,
        owner: str = ...,
        deterministic: bool = ...,
        on_error: Literal["raise", "null", "struct"] = ...,
        load: Literal["worker", "zygote"] = ...,
        load_timeout_seconds: float | None = ...,
        concurrency: int | None = ...,
        batching: Batching | None = ...,
        arguments: pa.Schema | None = ...,
        result: pa.DataType | pa.Field | SchemaFunction | None = ...,
    ) -> Callable[[Callable[_P, _R]], Function[_P, _R]]: ...

    def __call__(
        self,
        target: Any = None,
        /,
        *,
        name: str = "",
        version: str = "1",
        description: str = "",
        tags: Sequence[str] = (),
        owner: str = "",
        deterministic: bool = True,
        on_error: Literal["raise", "null", "struct"] = "raise",
        load: Literal["worker", "zygote"] = "worker",
        load_timeout_seconds: float | None = None,
        concurrency: int | None = None,
        batching: Batching | None = None,
        arguments: pa.Schema | None = None,
        result: pa.DataType | pa.Field | SchemaFunction | None = None,
    ) -> Any:
        """A function with a value for each row, or with a batch for each batch of any columns.

        Args:
            target: A function, an async function, or a class whose objects can be called.
            name: By which callers know it; dots separate namespaces. Default: that of the code.
            version: Any text without spaces and @. Of several versions the last one in the module is the default.
            description: What it does; the first line stands in lists. Default: the docstring.
            tags: Words to find it by.
            owner: Who answers for it: a team or an address.
            deterministic: Whether the same arguments always give the same result.
            on_error: What a failure means for its row: "raise" fails the call, "null" makes the result null, "struct"
                makes each result a struct of `value` and `error`. Code that takes columns is called with parts of a
                batch that fails, down to single rows.
            load: Where a class is constructed: "worker", once in each worker that is called for it, or "zygote", once
                for all workers, which are forked with it. It may then hold no thread, lock or connection.
            load_timeout_seconds: How long the constructor and `warm_up` of a class may take; one that takes longer is
                given up, and its function is at fault. 0 is no limit. Default: --load-timeout-seconds of the pool. A
                batched function has that of its `Batching`.
            concurrency: Rows of an async function of plain values that are awaited at once in a worker. Default: 32.
            batching: Have rows of many callers joined into batches, in processes of the function's own.
            arguments: Names and types of the arguments, instead of hints; the code gets pyarrow arrays.
            result: Type of the result, instead of a hint. Of a function of any columns: what computes the schema of
                the results from that of the arguments.

        Raises DeclarationError.
        """
        options = _Given(
            name,
            version,
            description,
            tags,
            owner,
            deterministic,
            load,
            load_timeout_seconds,
            on_error,
            concurrency,
            batching,
        )
        return _decorated(target, lambda code: _scalar(code, arguments, result, options.of(code)))

    @overload
    def table(self, target: Callable[_P, _R], /) -> Function[_P, _R]: ...

    @overload
    def table(
        self,
        /,
        *,
        name: str = ...,
        version: str = ...,
        description: str = ...,
        tags: Sequence[str] = ...,
        owner: str = ...,
        deterministic: bool = ...,
        load: Literal["worker", "zygote"] = ...,
        load_timeout_seconds: float | None = ...,
        arguments: pa.Schema | None = ...,
        result: pa.Schema | None = ...,
    ) -> Callable[[Callable[_P, _R]], Function[_P, _R]]: ...

    def table(
        self,
        target: Any = None,
        /,
        *,
        name: str = "",
        version: str = "1",
        description: str = "",
        tags: Sequence[str] = (),
        owner: str = "",
        deterministic: bool = True,
        load: Literal["worker", "zygote"] = "worker",
        load_timeout_seconds: float | None = None,
        arguments: pa.Schema | None = None,
        result: pa.Schema | None = None,
    ) -> Any:
        """A function with any number of rows for each row.

        Hinted with plain values it is called for each row, and gives an iterator of values or of records. Hinted with
        Arrow it gives an iterator of pyarrow.RecordBatch, and `result` is their schema; it is called with any number of
        rows, and has to treat each by itself.

        Options as of a function with a value for each row. Raises DeclarationError.
        """
        options = _Given(name, version, description, tags, owner, deterministic, load, load_timeout_seconds)
        return _decorated(target, lambda code: _table(code, arguments, result, options.of(code)))

    @overload
    def aggregate(self, target: Callable[_P, _R], /) -> Function[_P, _R]: ...

    @overload
    def aggregate(
        self,
        /,
        *,
        name: str = ...,
        version: str = ...,
        description: str = ...,
        tags: Sequence[str] = ...,
        owner: str = ...,
        deterministic: bool = ...,
        load: Literal["worker", "zygote"] = ...,
        load_timeout_seconds: float | None = ...,
    ) -> Callable[[Callable[_P, _R]], Function[_P, _R]]: ...

    def aggregate(
        self,
        target: Any = None,
        /,
        *,
        name: str = "",
        version: str = "1",
        description: str = "",
        tags: Sequence[str] = (),
        owner: str = "",
        deterministic: bool = True,
        load: Literal["worker", "zygote"] = "worker",
        load_timeout_seconds: float | None = None,
    ) -> Any:
        """A class that makes one value of each group of rows.

        Its methods are `start() -> State`, `accumulate(state, ...) -> State`, `merge(left, right) -> State` and
        `finish(state) -> T`. `merge(start(), state)` has to give the state again. States travel as Arrow values: State
        is any type that a hint may name. With plain values `accumulate` is called for each row; hinted with columns it
        is called once for each group of a batch, with its rows. Small batches are joined before that: how many rows it
        gets at once, and which of them together, is not the caller's choice.

        Options as of a function with a value for each row. Raises DeclarationError.
        """
        options = _Given(name, version, description, tags, owner, deterministic, load, load_timeout_seconds)
        return _decorated(target, lambda code: _aggregate(code, options.of(code)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    """What was written behind the decorator."""

    name: str
    version: str
    description: str
    tags: Sequence[str]
    owner: str
    deterministic: bool
    load: Literal["worker", "zygote"]
    load_timeout_seconds: float | None
    on_error: str = "raise"
    concurrency: int | None = None
    batching: Batching | None = None

    def of(self, code: Any) -> Options:
        """With what the code itself says instead of what is missing."""
        try:
            policy = ErrorPolicy(self.on_error)
        except ValueError:
            raise DeclarationError(f'on_error is "raise", "null" or "struct", not {self.on_error!r}') from None
        return Options(
            self.name or code.__name__,
            self.version,
            self.description or inspect.cleandoc(code.__doc__ or ""),
            tuple(self.tags),
            self.owner,
            self.deterministic,
            policy,
            self.load,
            self.concurrency,
            self.batching,
            self.load_timeout_seconds,
        )


function = FunctionDecorator()


def _decorated(target: Any, make: Callable[[Any], Function[Any, Any]]) -> Any:
    return make if target is None else make(target)


def _scalar(code: Any, arguments: Any, result: Any, options: Options) -> Function[Any, Any]:
    what = f"function {options.name!r}"
    signature = _signature(code, arguments, what)
    if signature.form is Form.RECORD_BATCH:
        if result is not None and not callable(result):
            raise DeclarationError(f"{what} takes any columns: result= computes their schema")
        return Function(code, options, Kind.ANY, signature, result)
    return Function(code, options, Kind.SCALAR, signature, [(_RESULT, _value_of(signature, result, what))])


def _table(code: Any, arguments: Any, result: Any, options: Options) -> Function[Any, Any]:
    what = f"function {options.name!r}"
    signature = _signature(code, arguments, what)
    if signature.takes_iterator or signature.form not in (Form.ROWS, Form.ARROW):
        raise DeclarationError(f"{what} gives a table: its arguments are plain values or Arrow columns")
    if signature.form is Form.ARROW:
        if not isinstance(result, pa.Schema):
            raise DeclarationError(
                f"{what} takes Arrow columns and gives a table: result= has to be its pyarrow.Schema"
            )
        columns = [(field.name, Hinted(field.type, field.nullable)) for field in result]
        return Function(code, options, Kind.TABLE, signature, columns)
    if result is not None:
        raise DeclarationError(f"{what} takes plain values: its rows are hinted, as Iterator[T]")
    row = item_of(signature.result, f"the result of {what}")
    fields = record_fields(row)
    if fields is None:
        return Function(code, options, Kind.TABLE, signature, [(_RESULT, hinted(row, f"a row of {what}"))])
    columns = [(name, hinted(hint, f"{name} of a row of {what}")) for name, hint in fields.items()]
    return Function(code, options, Kind.TABLE, signature, columns, record=row)


def _aggregate(code: Any, options: Options) -> Function[Any, Any]:
    what = f"function {options.name!r}"
    if not inspect.isclass(code):
        raise DeclarationError(f"{what} is an aggregate: it has to be a class")
    methods: Any = code
    missing = [name for name in _AGGREGATE_METHODS if not callable(getattr(code, name, None))]
    if missing:
        raise DeclarationError(f"{what} is an aggregate and lacks {', '.join(missing)}")
    state = _return_hint(methods.start, f"start of {what}")
    for method in (methods.accumulate, methods.merge):
        if _return_hint(method, f"{method.__name__} of {what}") != state:
            raise DeclarationError(f"{method.__name__} of {what} has to return what start returns, a state")
    signature = declared_signature(methods.accumulate, None, what, skip=2)
    if signature.takes_iterator or signature.is_async or signature.form is Form.RECORD_BATCH:
        raise DeclarationError(f"accumulate of {what} takes a state, and then columns or plain values")
    result = hinted(_return_hint(methods.finish, f"finish of {what}"), f"the result of {what}")
    return Function(
        code, options, Kind.AGGREGATE, signature, [(_RESULT, result)], state=hinted(state, f"the state of {what}")
    )


def _signature(code: Any, arguments: Any, what: str) -> Signature:
    if arguments is not None and not isinstance(arguments, pa.Schema):
        raise DeclarationError(f"{what}: arguments= is a pyarrow.Schema")
    if not inspect.isclass(code):
        return declared_signature(code, arguments, what)
    if "__call__" not in dir(code) or not inspect.isfunction(code.__call__):
        raise DeclarationError(f"{what} is a class without __call__")
    return declared_signature(code.__call__, arguments, what, skip=1)


def _value_of(signature: Signature, result: Any, what: str) -> Hinted:
    """What is returned for a row, declared or hinted."""
    if isinstance(result, pa.Field):
        return Hinted(result.type, result.nullable)
    if isinstance(result, pa.DataType):
        return Hinted(result, nullable=True)
    if result is not None:
        raise DeclarationError(f"{what}: result= is a pyarrow.DataType or pyarrow.Field")
    if signature.result is inspect.Parameter.empty:
        raise DeclarationError(f"{what} has no hint of its result")
    form, hint = form_of(signature.result)
    if form is not signature.form:
        raise DeclarationError(f"{what} takes {signature.form.value} and returns {form.value}: it has to be one form")
    value = hinted(hint, f"the result of {what}")
    if form is Form.NUMPY:
        check_numpy(value, f"the result of {what}")
    return value


def _return_hint(method: Any, what: str) -> Any:
    try:
        hint = typing.get_type_hints(method, include_extras=True).get("return")
    except NameError as error:
        raise DeclarationError(f"{what} has a hint that cannot be resolved: {error}") from error
    if hint is None:
        raise DeclarationError(f"{what} has no hint of what it returns")
    return hint
