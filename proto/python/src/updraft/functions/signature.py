# SPDX-License-Identifier: Apache-2.0
"""Signature of a callable, read from its type hints."""

import dataclasses
import inspect
import typing
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, get_args, get_origin

import pyarrow as pa
from pyarrow import types as kinds

from updraft.functions.arrow_types import forbidden_null
from updraft.functions.failures import DeclarationError
from updraft.functions.hints import FORMS, Form, Hinted, hinted
from updraft.functions.values import to_column
from updraft.nested_arrays import fields_inside

_ITERATORS = (Iterator, Iterable, Generator)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """Column that a function takes."""

    name: str
    value: Hinted
    default: Any = inspect.Parameter.empty
    """Value if the caller leaves the column out; `inspect.Parameter.empty` if the column is required."""

    @property
    def is_optional(self) -> bool:
        """Whether the argument has a default."""
        return self.default is not inspect.Parameter.empty


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """Form and arguments of a callable, with the hint of its result."""

    form: Form
    arguments: Sequence[Argument]
    result: Any
    """Hint of the result as written, for example `Arrow[T]`; `inspect.Parameter.empty` if there is none."""
    is_async: bool = False
    takes_iterator: bool = False
    """Whether the callable takes an iterator and is called once for many batches."""


def declared_signature(call: Callable[..., Any], arguments: pa.Schema | None, what: str, *, skip: int = 0) -> Signature:
    """Return the signature of a callable; raise DeclarationError if a pool cannot call it.

    Args:
        call: A function or method.
        arguments: Arguments that the author declared instead of hints; the callable then receives pyarrow arrays.
        what: Name of the callable in errors.
        skip: Number of parameters before the arguments, such as `self`.
    """
    parameters = list(inspect.signature(call).parameters.values())[skip:]
    hints = hints_of(call, what)
    is_async = inspect.iscoroutinefunction(call)
    if inspect.isasyncgenfunction(call) or get_origin(hints.get("return")) is AsyncIterator:
        raise DeclarationError(f"{what} is an async generator: an async function returns a value for each row")
    for parameter in parameters:
        if parameter.kind in _VARIADIC:
            raise DeclarationError(f"{what} takes *{parameter.name}: each argument needs a name and a hint")
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            raise DeclarationError(f"{what} takes {parameter.name!r} by keyword only: arguments are positional")
    result = hints.get("return", inspect.Parameter.empty)
    if arguments is not None:
        names = [parameter.name for parameter in parameters]
        if names != list(arguments.names):
            raise DeclarationError(f"{what} takes {names}, but arguments= says {list(arguments.names)}")
        defaults = {parameter.name: parameter.default for parameter in parameters}
        declared = [
            _argument(field.name, Hinted(field.type, field.nullable), defaults[field.name], what) for field in arguments
        ]
        return Signature(Form.ARROW, _distinct(declared, what), is_async=is_async, result=result)
    hinted_as = [(parameter, _hint_of(parameter, hints, what)) for parameter in parameters]
    if len(hinted_as) == 1 and hinted_as[0][1] is pa.RecordBatch:
        return Signature(Form.RECORD_BATCH, (), is_async=is_async, result=result)
    if len(hinted_as) == 1 and get_origin(hinted_as[0][1]) in _ITERATORS:
        parameter, hint = hinted_as[0]
        return _iterator(parameter, get_args(hint)[0], is_async=is_async, result=result, what=what)
    form, values = _columns([(parameter.name, hint) for parameter, hint in hinted_as], what)
    if not hinted_as:
        form = FORMS.get(get_origin(result), Form.ROWS)
        if form is not Form.ROWS:
            raise DeclarationError(
                f"{what} has no arguments, so nothing says how many values its result has: take at least one argument"
            )
    read = [
        _argument(parameter.name, value, parameter.default, what)
        for (parameter, _), value in zip(hinted_as, values, strict=True)
    ]
    return Signature(form, _distinct(read, what), is_async=is_async, result=result)


def form_of(hint: Any) -> tuple[Form, Any]:
    """Return the form that a hint asks for, and the hint of one value."""
    form = FORMS.get(get_origin(hint))
    return (Form.ROWS, hint) if form is None else (form, get_args(hint)[0])


def item_of(hint: Any, what: str) -> Any:
    """Return T of Iterator[T], Iterable[T] or Generator[T, ...]; raise DeclarationError for another hint."""
    if get_origin(hint) not in _ITERATORS:
        raise DeclarationError(f"{what} has to be hinted as an Iterator, not as {hint!r}")
    return get_args(hint)[0]


def _iterator(parameter: inspect.Parameter, item: Any, *, is_async: bool, result: Any, what: str) -> Signature:
    if is_async:
        raise DeclarationError(f"{what} takes an iterator and is async: it can be only one of the two")
    hints = get_args(item) if get_origin(item) is tuple else (item,)
    names = (
        [parameter.name] if len(hints) == 1 else [f"{parameter.name}_{number}" for number in range(1, len(hints) + 1)]
    )
    form, values = _columns(list(zip(names, hints, strict=True)), what)
    if form is Form.ROWS:
        raise DeclarationError(f"{what} takes an iterator of single values: take Iterator[Arrow[T]], or no iterator")
    return Signature(
        form,
        [Argument(name, value) for name, value in zip(names, values, strict=True)],
        takes_iterator=True,
        result=item_of(result, f"the result of {what}"),
    )


def _columns(hints: Sequence[tuple[str, Any]], what: str) -> tuple[Form, Sequence[Hinted]]:
    formed = [(name, *form_of(hint)) for name, hint in hints]
    forms = {form for _, form, _ in formed}
    if len(forms) > 1:
        raise DeclarationError(f"{what} mixes forms: all arguments are Arrow, Pandas, NumPy or plain values")
    values = [hinted(hint, f"the argument {name!r} of {what}") for name, _, hint in formed]
    form = forms.pop() if forms else Form.ROWS
    if form is Form.NUMPY:
        for (name, _, _), value in zip(formed, values, strict=True):
            check_numpy(value, f"the argument {name!r} of {what}")
            inside = _nullable_integer(value.type, may_be_null=value.nullable)
            if inside is not None:
                raise DeclarationError(
                    f"the argument {name!r} of {what} may have nulls inside, and NumPy has no null of {inside}:"
                    " use Pandas or Arrow, or declare a type that has no nulls there"
                )
    return form, values


def check_numpy(value: Hinted, what: str) -> None:
    """Raise DeclarationError for nullable types whose nulls NumPy cannot represent."""
    exact = kinds.is_integer(value.type) or kinds.is_boolean(value.type)
    if value.nullable and exact:
        raise DeclarationError(f"{what} may be null, and NumPy has no null of {value.type}: use Pandas or Arrow")


def _nullable_integer(kind: pa.DataType, *, may_be_null: bool) -> pa.DataType | None:
    """Return an integer type inside `kind` whose values may be null, or None.

    Nulls inside a null struct count too, because NumPy would turn all integers next to such a null into floats.
    """
    if kinds.is_integer(kind):
        return kind if may_be_null else None
    # A null list has no items, and map keys are never null, so only a null struct or a null list of fixed size makes
    # the values inside null.
    passes_on = may_be_null and (kinds.is_struct(kind) or kinds.is_fixed_size_list(kind))
    fields = [kind.item_field] if kinds.is_map(kind) else fields_inside(kind)
    found = (_nullable_integer(field.type, may_be_null=field.nullable or passes_on) for field in fields)
    return next((each for each in found if each is not None), None)


def hints_of(call: Callable[..., Any], what: str) -> dict[str, Any]:
    """Return the hints of a callable, by the names of its parameters and "return"; raise DeclarationError."""
    try:
        return typing.get_type_hints(call, include_extras=True)
    except NameError as error:
        raise DeclarationError(f"{what} has a hint that cannot be resolved: {error}") from error


def _hint_of(parameter: inspect.Parameter, hints: dict[str, Any], what: str) -> Any:
    if parameter.name not in hints:
        raise DeclarationError(f"the argument {parameter.name!r} of {what} has no type hint")
    return hints[parameter.name]


def _argument(name: str, value: Hinted, default: Any, what: str) -> Argument:
    if default is inspect.Parameter.empty:
        return Argument(name, value)
    where = f"the default of argument {name!r} of {what}"
    plain = default if value.to_arrow is None else value.to_arrow(default)
    try:
        column = to_column([plain], value.type)
    except (TypeError, ValueError, OverflowError) as error:
        raise DeclarationError(f"{where} does not fit {value.type}: {default!r} ({error})") from error
    if null := forbidden_null(column, value.field(name)):
        raise DeclarationError(f"{where} is null at {null}: hint it as T | None")
    return Argument(name, value, default)


def _distinct(arguments: Sequence[Argument], what: str) -> Sequence[Argument]:
    names = [argument.name for argument in arguments]
    if len(set(names)) < len(names):
        raise DeclarationError(f"{what} has two arguments of the same name: {names}")
    return tuple(arguments)
