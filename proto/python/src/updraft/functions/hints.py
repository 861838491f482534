# SPDX-License-Identifier: Apache-2.0
"""Forms and Arrow types for type hints, and conversions between the author's values and Arrow's.

    int      int64            date       date32                     list[T]      list<T>
    float    float64          datetime   timestamp[us, tz=UTC]      dict[K, V]   map<K, V>
    str      string           time       time64[us]                 dataclass, NamedTuple, TypedDict   struct
    bytes    binary           timedelta  duration[us]
    bool     bool             Decimal    decimal128(38, 18)

`T | None` may be null; `Annotated[T, pa.int32()]` has exactly the named type. `Arrow[T]`, `Pandas[T]` and `NumPy[T]`
are forms: columns of such values.
"""

import dataclasses
import datetime
import decimal
import enum
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar, Union, get_args, get_origin

import pyarrow as pa

from updraft.functions.failures import DeclarationError

Convert: TypeAlias = Callable[[Any], Any]
_T = TypeVar("_T")


class Form(enum.Enum):
    """Form of the arguments and the result of the author's code."""

    ROWS = "plain values, one row a call"
    ARROW = "pyarrow.Array"
    PANDAS = "pandas.Series"
    NUMPY = "numpy.ndarray"
    RECORD_BATCH = "pyarrow.RecordBatch, of any columns"


if TYPE_CHECKING:
    from typing_extensions import TypeAliasType

    # Type checkers see a column as Any, so neither pyarrow nor pandas needs stubs.
    Arrow = TypeAliasType("Arrow", Any, type_params=(_T,))
    Pandas = TypeAliasType("Pandas", Any, type_params=(_T,))
    NumPy = TypeAliasType("NumPy", Any, type_params=(_T,))
else:

    class Arrow(Generic[_T]):
        """Hint `Arrow[T]`: a pyarrow.Array with the values of one batch, each of them a T."""

    class Pandas(Generic[_T]):
        """Hint `Pandas[T]`: a pandas.Series with the values of one batch.

        A nullable int or bool column has pandas' nullable type. A list is an ndarray, and a null in a list of floats is
        NaN. In results, NaN means null wherever the type allows nulls, except in dicts.
        """

    class NumPy(Generic[_T]):
        """Hint `NumPy[T]`: a one-dimensional numpy.ndarray with the values of one batch.

        NumPy has no null. A null float becomes NaN, also inside a list. Hints of other nullable numbers are refused. In
        results, NaN means null wherever the type allows nulls, except in dicts.
        """


FORMS: dict[Any, Form] = {Arrow: Form.ARROW, Pandas: Form.PANDAS, NumPy: Form.NUMPY}

_PLAIN: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us", "UTC"),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 18),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Hinted:
    """Arrow type of a hint, with its conversions."""

    type: pa.DataType
    nullable: bool = False
    from_arrow: Convert | None = None
    """Convert Arrow's value to the author's; None if they are the same."""
    to_arrow: Convert | None = None
    """Convert the author's value to Arrow's; None if they are the same."""

    def field(self, name: str) -> pa.Field:
        """Return the field of a column of such values."""
        return pa.field(name, self.type, nullable=self.nullable)


def hinted(hint: Any, what: str) -> Hinted:
    """Return the Arrow type of a hint; raise DeclarationError if it has none. `what` names the hint's place."""
    if hint in (None, types.NoneType):
        raise DeclarationError(f"{what} is hinted as None: name the type of its values that are not null")
    if get_origin(hint) in (Union, types.UnionType):
        return _union(hint, what)
    if get_origin(hint) is Annotated:
        return _annotated(hint, what)
    try:
        if hint in _PLAIN:
            return Hinted(_PLAIN[hint])
    except TypeError:
        raise DeclarationError(f"{what} has a hint that is not a type: {hint!r}") from None
    if get_origin(hint) is list:
        return _list(hint, what)
    if get_origin(hint) is dict:
        return _dict(hint, what)
    if (fields := record_fields(hint)) is not None:
        return _record(hint, fields, what)
    raise DeclarationError(
        f"{what} has the hint {_text(hint)}, which has no Arrow type: use int, float, str, bytes, bool, date, datetime,"
        " time, timedelta, Decimal, list[T], dict[K, V], a dataclass, NamedTuple or TypedDict, or"
        " Annotated[T, pyarrow type]"
    )


def record_fields(hint: Any) -> dict[str, Any] | None:
    """Return names and hints of the fields of a dataclass, NamedTuple or TypedDict; None for anything else."""
    is_record = isinstance(hint, type) and (
        dataclasses.is_dataclass(hint)
        or typing.is_typeddict(hint)
        or (issubclass(hint, tuple) and hasattr(hint, "_fields"))
    )
    return typing.get_type_hints(hint, include_extras=True) if is_record else None


def _union(hint: Any, what: str) -> Hinted:
    members = [member for member in get_args(hint) if member is not types.NoneType]
    if len(members) != 1:
        raise DeclarationError(f"{what} has the hint {_text(hint)}: use one type, or one type and None")
    member = hinted(members[0], what)
    return Hinted(
        member.type,
        nullable=True,
        from_arrow=_unless_none(member.from_arrow),
        to_arrow=_unless_none(member.to_arrow),
    )


def _annotated(hint: Any, what: str) -> Hinted:
    inner, *notes = get_args(hint)
    exact = [note for note in notes if isinstance(note, pa.DataType)]
    if not exact:
        return hinted(inner, what)
    try:
        value = hinted(inner, what)
    except DeclarationError:
        # The annotation alone gives the type: Annotated[Any, pa.uint8()].
        return Hinted(exact[0])
    return dataclasses.replace(value, type=exact[0])


def _list(hint: Any, what: str) -> Hinted:
    item = hinted(get_args(hint)[0], f"an item of {what}")
    return Hinted(
        pa.list_(item.field("item")),
        from_arrow=_of_each(item.from_arrow),
        to_arrow=_of_each(item.to_arrow),
    )


def _dict(hint: Any, what: str) -> Hinted:
    key, value = (
        hinted(part, f"{kind} of {what}") for part, kind in zip(get_args(hint), ("a key", "a value"), strict=True)
    )
    if key.nullable:
        raise DeclarationError(f"a key of {what} cannot be None")
    into, out = value.from_arrow, value.to_arrow
    return Hinted(
        pa.map_(key.type, value.field("value")),
        # Arrow returns a map as a list of pairs.
        from_arrow=dict if into is None else lambda pairs: {key: into(each) for key, each in pairs},
        to_arrow=None if out is None else lambda entries: {key: out(each) for key, each in entries.items()},
    )


def _record(cls: Any, fields: dict[str, Any], what: str) -> Hinted:
    if not fields:
        raise DeclarationError(f"{what} is a {cls.__name__}, which has no fields")
    members = {name: hinted(hint, f"{name} of {what}") for name, hint in fields.items()}
    into = {name: member.from_arrow for name, member in members.items() if member.from_arrow is not None}
    out = {name: member.to_arrow for name, member in members.items() if member.to_arrow is not None}
    names = tuple(members)
    is_dict = typing.is_typeddict(cls)

    def from_arrow(value: dict[str, Any]) -> Any:
        for name, convert in into.items():
            value[name] = convert(value[name])
        return value if is_dict else cls(**value)

    def to_arrow(value: Any) -> dict[str, Any]:
        plain = {name: value[name] for name in names} if is_dict else {name: getattr(value, name) for name in names}
        for name, convert in out.items():
            plain[name] = convert(plain[name])
        return plain

    return Hinted(
        pa.struct([member.field(name) for name, member in members.items()]),
        from_arrow=None if is_dict and not into else from_arrow,
        to_arrow=to_arrow,
    )


def _unless_none(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _of_each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: [convert(value) for value in values]


def _text(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
