# SPDX-License-Identifier: Apache-2.0
"""Decorators `@function`, `@function.table` and `@function.aggregate`, which wrap an author's code in a `Function`."""

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
    """Decorator that defines registered functions. Its only instance is `updraft.function`."""

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
        """Define a function that returns a value for each row, or one that maps batches of any columns to batches.

        Args:
            target: A function, an async function, or a class with callable instances.
            name: Name for callers; dots separate namespaces. Default: the name of the code.
            version: Any text without spaces or @. The last version defined in a module is the default one.
            description: Purpose of the function; lists show the first line. Default: the docstring.
            tags: Words to find it by.
            owner: Team or address responsible for it.
            deterministic: Whether equal arguments always give equal results.
            on_error: Effect of a row's failure: "raise" fails the call, "null" makes the row's result null, "struct"
                makes every result a struct of `value` and `error`. If code that takes columns fails, it is called again
                with ever smaller parts of the batch, down to single rows.
            load: Where a class is constructed: "worker" constructs it in each worker that runs it, "zygote" once before
                workers are forked. A class loaded in the zygote must not hold threads, locks or connections.
            load_timeout_seconds: Time limit for the constructor and `warm_up` of a class; exceeding it counts as the
                function's fault. 0 sets no limit. Default: --load-timeout-seconds of the pool. For a batched function,
                set the limit in its `Batching`.
            concurrency: Rows that a worker awaits at once, for an async function of plain values. Default: 32.
            batching: Joins rows of many callers into batches, which separate model processes compute.
            arguments: Names and types of the arguments, instead of hints; the code gets pyarrow arrays.
            result: Type of the result, instead of a hint. For a function of any columns: a callable that computes the
                schema of the results from that of the arguments.

        Raises:
            DeclarationError: A pool cannot run the function as defined.
        """
        options = _Options(
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
        """Define a table function, which returns any number of rows for each row.

        With hints of plain values, it is called for each row and returns an iterator of values or records. With Arrow
        hints, it is called with any number of rows, must treat each row separately, and returns an iterator of
        pyarrow.RecordBatch with the schema `result`.

        The options are those of `@function`.

        Raises:
            DeclarationError: A pool cannot run the function as defined.
        """
        options = _Options(name, version, description, tags, owner, deterministic, load, load_timeout_seconds)
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
        """Define an aggregate: a class that computes one value for each group of rows.

        Its methods are `start() -> State`, `accumulate(state, ...) -> State`, `merge(left, right) -> State` and
        `finish(state) -> T`. `merge(start(), state)` must equal `state`. States travel as Arrow values, so State is any
        type that a hint may name. With hints of plain values, `accumulate` is called for each row. With hints of
        columns, it is called once for each group of a batch, with the group's rows. Small batches are joined first, so
        callers do not control which rows `accumulate` gets together, or how many.

        The options are those of `@function`.

        Raises:
            DeclarationError: A pool cannot run the aggregate as defined.
        """
        options = _Options(name, version, description, tags, owner, deterministic, load, load_timeout_seconds)
        return _decorated(target, lambda code: _aggregate(code, options.of(code)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Options:
    """Options given to a decorator."""

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
        """Return the options with missing ones taken from the code: its name and docstring."""
        try:
            policy = ErrorPolicy(self.on_error)
        except ValueError:
            raise DeclarationError(f'on_error has to be "raise", "null" or "struct", not {self.on_error!r}') from None
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
            raise DeclarationError(f"{what} takes any columns: result= has to be a function that computes their schema")
        return Function(code, options, Kind.ANY, signature, result)
    return Function(code, options, Kind.SCALAR, signature, [(_RESULT, _value_of(signature, result, what))])


def _table(code: Any, arguments: Any, result: Any, options: Options) -> Function[Any, Any]:
    what = f"function {options.name!r}"
    signature = _signature(code, arguments, what)
    if signature.takes_iterator or signature.form not in (Form.ROWS, Form.ARROW):
        raise DeclarationError(f"{what} gives a table: its arguments have to be plain values or Arrow columns")
    if signature.form is Form.ARROW:
        if not isinstance(result, pa.Schema):
            raise DeclarationError(
                f"{what} takes Arrow columns and gives a table: result= has to be its pyarrow.Schema"
            )
        columns = [(field.name, Hinted(field.type, field.nullable)) for field in result]
        return Function(code, options, Kind.TABLE, signature, columns)
    if result is not None:
        raise DeclarationError(f"{what} takes plain values: hint its rows as Iterator[T], and leave result= out")
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
        raise DeclarationError(f"{what} is an aggregate but lacks {', '.join(missing)}")
    state = _return_hint(methods.start, f"start of {what}")
    for method in (methods.accumulate, methods.merge):
        if _return_hint(method, f"{method.__name__} of {what}") != state:
            raise DeclarationError(f"{method.__name__} of {what} has to return what start returns, a state")
    signature = declared_signature(methods.accumulate, None, what, skip=2)
    if signature.takes_iterator or signature.is_async or signature.form is Form.RECORD_BATCH:
        raise DeclarationError(f"accumulate of {what} has to take a state, and then columns or plain values")
    result = hinted(_return_hint(methods.finish, f"finish of {what}"), f"the result of {what}")
    return Function(
        code, options, Kind.AGGREGATE, signature, [(_RESULT, result)], state=hinted(state, f"the state of {what}")
    )


def _signature(code: Any, arguments: Any, what: str) -> Signature:
    if arguments is not None and not isinstance(arguments, pa.Schema):
        raise DeclarationError(f"{what}: arguments= has to be a pyarrow.Schema")
    if not inspect.isclass(code):
        return declared_signature(code, arguments, what)
    if "__call__" not in dir(code) or not inspect.isfunction(code.__call__):
        raise DeclarationError(f"{what} is a class without __call__")
    return declared_signature(code.__call__, arguments, what, skip=1)


def _value_of(signature: Signature, result: Any, what: str) -> Hinted:
    """Return the type of a row's result, from `result=` or from the hint."""
    if isinstance(result, pa.Field):
        return Hinted(result.type, result.nullable)
    if isinstance(result, pa.DataType):
        return Hinted(result, nullable=True)
    if result is not None:
        raise DeclarationError(f"{what}: result= has to be a pyarrow.DataType or pyarrow.Field")
    if signature.result is inspect.Parameter.empty:
        raise DeclarationError(f"{what} has no hint for its result")
    form, hint = form_of(signature.result)
    if form is not signature.form:
        raise DeclarationError(f"{what} takes {signature.form.value} and returns {form.value}: use one form for both")
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
        raise DeclarationError(f"{what} has no hint for its result")
    return hint
