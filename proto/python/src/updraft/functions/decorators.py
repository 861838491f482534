# SPDX-License-Identifier: Apache-2.0
"""Decorators `@function`, `@function.table` and `@function.aggregate`, which wrap an author's code in a `Function`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, overload

import pyarrow as pa

from updraft.functions.definition import Function, Kind
from updraft.functions.failures import DeclarationError
from updraft.functions.hints import Form, Hinted, hinted, record_fields
from updraft.functions.options import FunctionOptions, Options, TableOptions
from updraft.functions.signature import Signature, check_numpy, declared_signature, form_of, hints_of, item_of

_P = ParamSpec("_P")
_R = TypeVar("_R")

_RESULT = "result"
_AGGREGATE_METHODS = ("start", "accumulate", "merge", "finish")


class FunctionDecorator:
    """Decorator that defines registered functions. Its only instance is `updraft.function`."""

    @overload
    def __call__(self, target: Callable[_P, _R], /) -> Function[_P, _R]: ...

    @overload
    def __call__(self, /, **options: Unpack[FunctionOptions]) -> Callable[[Callable[_P, _R]], Function[_P, _R]]: ...

    def __call__(self, target: Any = None, /, **options: Unpack[FunctionOptions]) -> Any:
        """Define a function that returns a value for each row, or that maps batches of any columns to batches.

        Args:
            target: A function, an async function, or a class with callable instances.
            options: `updraft.functions.options.FunctionOptions` describes them.

        Raises:
            DeclarationError: A pool cannot run the function as defined.
        """
        return _decorated(target, _scalar, options, FunctionOptions)

    @overload
    def table(self, target: Callable[_P, _R], /) -> Function[_P, _R]: ...

    @overload
    def table(self, /, **options: Unpack[TableOptions]) -> Callable[[Callable[_P, _R]], Function[_P, _R]]: ...

    def table(self, target: Any = None, /, **options: Unpack[TableOptions]) -> Any:
        """Define a table function, which returns any number of rows for each row.

        With hints of plain values, the function is called for each row and returns an iterator of values or records.
        With Arrow hints, the function is called with any number of rows. The function must treat each row separately
        and return an iterator of pyarrow.RecordBatch with the schema `result`.

        Args:
            target: A function, or a class with callable instances.
            options: `updraft.functions.options.TableOptions` describes them.

        Raises:
            DeclarationError: A pool cannot run the function as defined.
        """
        return _decorated(target, _table, options, TableOptions)

    @overload
    def aggregate(self, target: Callable[_P, _R], /) -> Function[_P, _R]: ...

    @overload
    def aggregate(self, /, **options: Unpack[Options]) -> Callable[[Callable[_P, _R]], Function[_P, _R]]: ...

    def aggregate(self, target: Any = None, /, **options: Unpack[Options]) -> Any:
        """Define an aggregate: a class that computes one value for each group of rows.

        Its methods are `start() -> State`, `accumulate(state, ...) -> State`, `merge(left, right) -> State` and
        `finish(state) -> T`. `merge(start(), state)` must equal `state`. States travel as Arrow values, so State may be
        any type that a hint can name. With hints of plain values, `accumulate` is called for each row. With hints of
        columns, `accumulate` is called once for each group of a batch, with the group's rows. Small batches are joined
        first, so callers control neither which nor how many rows `accumulate` receives in one call.

        Args:
            target: The class.
            options: `updraft.functions.options.Options` describes them.

        Raises:
            DeclarationError: A pool cannot run the aggregate as defined.
        """
        return _decorated(target, _aggregate, options, Options)


function = FunctionDecorator()


def _decorated(
    target: Any,
    make: Callable[[Any, str, Mapping[str, Any]], Function[Any, Any]],
    options: Mapping[str, Any],
    known: Any,
) -> Any:
    """Return the function, or a decorator if there is no target yet; raise TypeError for an option not in `known`."""
    if unknown := options.keys() - known.__optional_keys__:
        raise TypeError(f"unknown options of a function: {sorted(unknown)}; it has {sorted(known.__optional_keys__)}")

    def decorate(code: Any) -> Function[Any, Any]:
        name = options.get("name") or code.__name__
        return make(code, f"function {name!r}", {**options, "name": name})

    return decorate if target is None else decorate(target)


def _scalar(code: Any, what: str, options: Mapping[str, Any]) -> Function[Any, Any]:
    signature, result = _signature(code, options, what), options.get("result")
    if signature.form is Form.RECORD_BATCH:
        if result is not None and not callable(result):
            raise DeclarationError(f"{what} takes any columns: result= has to be a function that computes their schema")
        return Function(code, options, Kind.ANY, signature, result)
    return Function(code, options, Kind.SCALAR, signature, [(_RESULT, _value_of(signature, result, what))])


def _table(code: Any, what: str, options: Mapping[str, Any]) -> Function[Any, Any]:
    signature, result = _signature(code, options, what), options.get("result")
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


def _aggregate(code: Any, what: str, options: Mapping[str, Any]) -> Function[Any, Any]:
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


def _signature(code: Any, options: Mapping[str, Any], what: str) -> Signature:
    arguments = options.get("arguments")
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
    hint = hints_of(method, what).get("return")
    if hint is None:
        raise DeclarationError(f"{what} has no hint for its result")
    return hint
