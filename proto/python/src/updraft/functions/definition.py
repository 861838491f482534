# SPDX-License-Identifier: Apache-2.0
"""Function as its author defined it, and its loaded code. A pool registers the function; tests can call it directly."""

import enum
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import pyarrow as pa

from updraft.functions.arguments import Arguments
from updraft.functions.failures import DeclarationError, Explain, raised, wrong_result
from updraft.functions.hints import Form, Hinted
from updraft.functions.options import Batching, SchemaFunction
from updraft.functions.signature import Signature
from updraft.reply_checks import has_dictionary

_P = ParamSpec("_P")
_R = TypeVar("_R")

_DEFAULT_CONCURRENCY = 32
_numbers = itertools.count()
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")


class Kind(enum.Enum):
    """Relation between a function's rows and its results."""

    ANY = "a batch of as many rows for each batch, of any columns"
    SCALAR = "a value for each row"
    TABLE = "any number of rows for each row"
    AGGREGATE = "a value for each group of rows"


class ErrorPolicy(enum.Enum):
    """Effect of a row's failure."""

    RAISE = "raise"
    """The call fails."""
    NULL = "null"
    """The row's result is null."""
    STRUCT = "struct"
    """Each row's result is a struct of `value` and `error`; one of them is null."""


class Function(Generic[_P, _R]):
    """Defined function. A call of this object calls the author's code, as if that code had not been decorated."""

    __name__: str

    def __init__(
        self,
        target: Callable[_P, _R],
        options: Mapping[str, Any],
        kind: Kind,
        signature: Signature,
        results: Sequence[tuple[str, Hinted]] | SchemaFunction | None,
        state: Hinted | None = None,
        record: Any = None,
    ) -> None:
        """Define a function, as the decorators of `updraft.functions` do; raise DeclarationError.

        Args:
            target: The author's function or class.
            options: The author's options, with a name.
            kind: Relation between rows and results.
            signature: Arguments of the function.
            results: Names and types of its results. For `Kind.ANY`: a callable that computes their schema, or None.
            state: State sent between the stages of an aggregate; None for other functions.
            record: Class of a table function's rows; None if a row is a single value.
        """
        self.number = next(_numbers)
        """Sequence number of the definition: larger than the numbers of all earlier definitions."""
        self.target = target
        self.kind = kind
        self.signature = signature
        self.name: str = options["name"]
        self.version: str = options.get("version", "1")
        self.doc: str = options.get("description") or inspect.cleandoc(target.__doc__ or "")
        self.tags = tuple[str, ...](options.get("tags", ()))
        self.owner: str = options.get("owner", "")
        self.deterministic: bool = options.get("deterministic", True)
        self.on_error = _error_policy(options.get("on_error", "raise"))
        self.loads_in: str = options.get("load", "worker")
        """Process that constructs a class: each worker that runs it, or the zygote for all workers."""
        concurrency: int | None = options.get("concurrency")
        self.concurrency = _DEFAULT_CONCURRENCY if concurrency is None else concurrency
        """Number of calls of an async function that a worker runs at once."""
        self.batching: Batching | None = options.get("batching")
        self.load_timeout_seconds: float | None = options.get("load_timeout_seconds")
        """Time limit for the constructor and `warm_up` of a class; 0 sets no limit, None uses the pool's limit."""
        self.arguments = Arguments(self.name, signature.arguments)
        self.state = state
        self.record = record
        self.results: Sequence[tuple[str, Hinted]] = () if results is None or callable(results) else results
        """Names and types of the results, before `on_error` changes them."""
        self._results_of = results if callable(results) else None
        self._fail_unless_in_range()
        self._fail_unless_consistent()
        self._fail_unless_in_effect(has_concurrency=concurrency is not None)
        functools.update_wrapper(self, target, updated=())

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the author's code; for a class, construct an instance."""
        return self.target(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Give access to attributes of a decorated class, but not to special names, which copy and pickle look up.
        if name.startswith("__") or name == "target":
            raise AttributeError(name)
        return getattr(self.target, name)

    def __repr__(self) -> str:
        return f"<updraft function {self.name} {self.version}>"

    @property
    def is_class(self) -> bool:
        """Whether the target is a class, which must be constructed before it can run."""
        return inspect.isclass(self.target)

    @property
    def is_called_by_row(self) -> bool:
        """Whether the author's code is called for each row and cannot see other rows."""
        return self.kind is Kind.SCALAR and self.signature.form is Form.ROWS and not self.signature.takes_iterator

    @property
    def argument_schema(self) -> pa.Schema | None:
        """Schema of the arguments; None if the function takes any columns."""
        return None if self.kind is Kind.ANY else self.arguments.schema

    @property
    def result_schema(self) -> pa.Schema | None:
        """Schema of the results; None if it depends on the arguments."""
        return None if self.kind is Kind.ANY else pa.schema(self._result_fields())

    @property
    def state_schema(self) -> pa.Schema | None:
        """Schema of an aggregate's state, with one field named "state"; None for other functions."""
        return None if self.state is None else pa.schema([self.state.field("state")])

    @property
    def defaults(self) -> Sequence[Any]:
        """Defaults, as the author wrote them, of the last arguments, which a caller may leave out."""
        count = len(self.arguments.defaults)
        return [argument.default for argument in self.signature.arguments[len(self.signature.arguments) - count :]]

    def results_for(self, arguments: pa.Schema) -> pa.Schema | None:
        """Return the schema of the results for arguments of this schema; raise UserError if the author's code fails.

        Return None if the schema is unknown until the first result.
        """
        if self.kind is not Kind.ANY:
            return self.result_schema
        if self._results_of is None:
            return None
        try:
            schema = self._results_of(arguments)
        except BaseException as error:
            raise raised(error) from error
        if not isinstance(schema, pa.Schema):
            raise wrong_result(
                f"result= of function {self.name!r} returned {type(schema).__name__}, not a pyarrow.Schema"
            )
        return schema

    def checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a caller's batch in exactly the types of `argument_schema`, with defaults; raise ProtocolError."""
        return batch if self.kind is Kind.ANY else self.arguments.checked(batch)

    def _result_fields(self) -> Sequence[pa.Field]:
        fields = [value.field(name) for name, value in self.results]
        if self.on_error is ErrorPolicy.RAISE:
            return fields
        (field,) = fields
        if self.on_error is ErrorPolicy.NULL:
            return [pa.field(field.name, field.type)]
        return [pa.field(field.name, error_struct(field.type), nullable=False)]

    def _fail_unless_in_range(self) -> None:
        if not all(self.name.split(".")) or not set(self.name) <= _NAME_CHARACTERS:
            raise DeclarationError(
                f"the name {self.name!r} of a function has to consist of letters, digits and _, with dots between "
                "namespaces"
            )
        if not self.version or "@" in self.version or self.version.split() != [self.version]:
            raise DeclarationError(
                f"the version {self.version!r} of function {self.name!r} cannot follow @: use text without @ or spaces"
            )
        if self.loads_in not in ("worker", "zygote"):
            raise DeclarationError(
                f'load of function {self.name!r} has to be "worker" or "zygote", not {self.loads_in!r}'
            )
        if self.concurrency < 1:
            raise DeclarationError(f"concurrency of function {self.name!r} has to be at least 1")
        if self.load_timeout_seconds is not None and not 0 <= self.load_timeout_seconds < math.inf:
            raise DeclarationError(f"load_timeout_seconds of function {self.name!r} has to be 0 or more seconds")

    def _fail_unless_consistent(self) -> None:
        what = f"function {self.name!r}"
        simple = self.kind is Kind.SCALAR and not self.signature.takes_iterator
        if self.on_error is not ErrorPolicy.RAISE and not simple:
            raise DeclarationError(
                f'{what}: on_error="{self.on_error.value}" is for functions that return one value per row'
            )
        if self.batching is not None and self.load_timeout_seconds is not None:
            raise DeclarationError(f"{what} is batched: set load_timeout_seconds of Batching instead")
        if self.batching is not None and (not simple or self.signature.is_async):
            raise DeclarationError(f"{what}: batching is for functions that return one value per row and are not async")
        if self.signature.is_async and self.kind is not Kind.SCALAR:
            raise DeclarationError(f"{what} is async: only functions that return one value per row can be")
        if self.signature.form is Form.RECORD_BATCH and self.kind is not Kind.ANY:
            raise DeclarationError(f"{what} takes batches of any columns: its arguments need hints")
        columns = [*((argument.name, argument.value) for argument in self.signature.arguments), *self.results]
        columns += [] if self.state is None else [("state", self.state)]
        for name, value in columns:
            if has_dictionary(value.type):
                raise DeclarationError(
                    f"{name!r} of {what} is {value.type}: dictionaries cannot be sent, declare the type of their values"
                )

    def _fail_unless_in_effect(self, *, has_concurrency: bool) -> None:
        """Raise DeclarationError if an option has no effect on this kind of function."""
        what = f"function {self.name!r}"
        if self.batching is not None and self.loads_in == "zygote":
            raise DeclarationError(f'{what} is batched, and its own process loads it: leave load="zygote" out')
        if not self.is_class and self.loads_in == "zygote":
            raise DeclarationError(
                f'{what} is not a class, so there is nothing to load: make it a class, or leave load="zygote" out'
            )
        if not self.is_class and self.load_timeout_seconds is not None:
            raise DeclarationError(f"{what} is not a class: make it one, or leave load_timeout_seconds out")
        if has_concurrency and not self.signature.is_async:
            raise DeclarationError(f"{what} is not async: make it async, or leave concurrency out")
        if has_concurrency and self.signature.form is not Form.ROWS:
            raise DeclarationError(
                f"{what} is called once for a whole batch: take plain values, or leave concurrency out"
            )


def error_struct(value: pa.DataType) -> pa.DataType:
    """Return the type of a result under ErrorPolicy.STRUCT."""
    return pa.struct([pa.field("value", value), pa.field("error", pa.string())])


def _error_policy(on_error: str) -> ErrorPolicy:
    try:
        return ErrorPolicy(on_error)
    except ValueError:
        raise DeclarationError(f'on_error has to be "raise", "null" or "struct", not {on_error!r}') from None


class Loaded:
    """Author's code, which subclasses call; if the code is a class, an instance has been constructed."""

    def __init__(self, function: Function[Any, Any], explain: Explain) -> None:
        """If the function is a class, construct an instance; raise whatever the constructor raises."""
        self.function = function
        self.code: Any = function.target() if function.is_class else function.target
        """Author's function, or the instance of the author's class."""
        self._explain = explain

    def warm_up(self) -> None:
        """Call the author's `warm_up`, if there is one; raise whatever `warm_up` raises."""
        warm_up = getattr(self.code, "warm_up", None)
        if callable(warm_up):
            warm_up()

    def raised(self, error: BaseException) -> Exception:
        """Return the error for an exception of the author's code, with notes that explain it."""
        self._explain(error)
        return raised(error)
