# SPDX-License-Identifier: Apache-2.0
"""A function as its author has defined it: what a pool registers, and what a test calls as before."""

import dataclasses
import enum
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar

import pyarrow as pa

from updraft.functions.arguments import Arguments
from updraft.functions.batching import Batching
from updraft.functions.declaration_error import DeclarationError
from updraft.functions.failures import raised, wrong_result
from updraft.functions.forms import Form
from updraft.functions.hints import Hinted
from updraft.functions.signature import Signature
from updraft.reply_checks import has_dictionary

_P = ParamSpec("_P")
_R = TypeVar("_R")

SchemaFunction: TypeAlias = Callable[[pa.Schema], pa.Schema]

_DEFAULT_CONCURRENCY = 32
_numbers = itertools.count()
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")


class Kind(enum.Enum):
    """How many results there are for how many rows."""

    ANY = "a batch of as many rows for each batch, of any columns"
    SCALAR = "a value for each row"
    TABLE = "any number of rows for each row"
    AGGREGATE = "a value for each group of rows"


class ErrorPolicy(enum.Enum):
    """What a failure means for the row that it happened to."""

    RAISE = "raise"
    """The call fails."""
    NULL = "null"
    """The row's result is null."""
    STRUCT = "struct"
    """Each row's result is a struct of `value` and `error`; one of them is null."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What an author says of a function beside its code."""

    name: str
    version: str = "1"
    description: str = ""
    tags: Sequence[str] = ()
    owner: str = ""
    deterministic: bool = True
    on_error: ErrorPolicy = ErrorPolicy.RAISE
    loads_in: Literal["worker", "zygote"] = "worker"
    concurrency: int | None = None
    batching: Batching | None = None
    load_timeout_seconds: float | None = None


class Function(Generic[_P, _R]):
    """A defined function. Calling it calls the author's code, as if it had not been decorated."""

    __name__: str

    def __init__(
        self,
        target: Callable[_P, _R],
        options: Options,
        kind: Kind,
        signature: Signature,
        results: Sequence[tuple[str, Hinted]] | SchemaFunction | None,
        state: Hinted | None = None,
        record: Any = None,
    ) -> None:
        """Made by the decorators of `updraft.functions`.

        Args:
            target: The author's function or class.
            options: What the author says of it.
            kind: How many results there are.
            signature: What it takes.
            results: Names and types of its results; of `Kind.ANY` what computes their schema, if anything does.
            state: Of an aggregate: what is sent between its stages.
            record: Of a table function: the class of a row; None where a row is a single value.
        """
        _check(options)
        self.number = next(_numbers)
        """Larger than that of every function that was defined before."""
        self.target = target
        self.kind = kind
        self.signature = signature
        self.name = options.name
        self.version = options.version
        self.doc = options.description
        self.tags = tuple(options.tags)
        self.owner = options.owner
        self.deterministic = options.deterministic
        self.on_error = options.on_error
        self.loads_in = options.loads_in
        """Where the constructor of a class runs: in each worker that is called for it, or once in the zygote."""
        self.concurrency = options.concurrency or _DEFAULT_CONCURRENCY
        """Calls of an async function that run at once in a worker."""
        self.batching = options.batching
        self.load_timeout_seconds = options.load_timeout_seconds
        """How long the constructor and `warm_up` of a class may take; 0 is no limit, None leaves it to the pool."""
        self.arguments = Arguments(options.name, signature.arguments)
        self.state = state
        self.record = record
        self.results: Sequence[tuple[str, Hinted]] = ()
        """Names and types of what it returns for a row, before `on_error` changes them."""
        self._results_of: SchemaFunction | None = None
        if callable(results):
            self._results_of = results
        elif results is not None:
            self.results = results
        self._fail_unless_consistent()
        self._fail_unless_in_effect(options)
        functools.update_wrapper(self, target, updated=())

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the author's code; a class is constructed."""
        return self.target(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # What a decorated class has beside its methods; nothing of Python's own, which copies and pickles look for.
        if name.startswith("__") or name == "target":
            raise AttributeError(name)
        return getattr(self.target, name)

    def __repr__(self) -> str:
        return f"<updraft function {self.name} {self.version}>"

    @property
    def is_class(self) -> bool:
        """Whether it has to be constructed before it can be called."""
        return inspect.isclass(self.target)

    @property
    def argument_schema(self) -> pa.Schema | None:
        """Of the arguments; None if it takes any columns."""
        return None if self.kind is Kind.ANY else self.arguments.schema

    @property
    def result_schema(self) -> pa.Schema | None:
        """Of the results; None if they depend on the arguments."""
        return None if self.kind is Kind.ANY else pa.schema(self._result_fields())

    @property
    def state_schema(self) -> pa.Schema | None:
        """Of an aggregate's state: one field, named "state"; None of other functions."""
        return None if self.state is None else pa.schema([self.state.field("state")])

    @property
    def defaults(self) -> Sequence[Any]:
        """Of the last arguments, which a caller may leave out: values as the author wrote them."""
        count = len(self.arguments.defaults)
        return [argument.default for argument in self.signature.arguments[len(self.signature.arguments) - count :]]

    def results_for(self, arguments: pa.Schema) -> pa.Schema | None:
        """The schema of the results for arguments of that schema; None if only a result shows it. Raises UserError."""
        if self.kind is not Kind.ANY:
            return self.result_schema
        if self._results_of is None:
            return None
        try:
            schema = self._results_of(arguments)
        except BaseException as error:
            raise raised(error) from error
        if not isinstance(schema, pa.Schema):
            raise wrong_result(f"result= of function {self.name!r} gave no pyarrow.Schema: {type(schema).__name__}")
        return schema

    def checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A caller's batch in exactly the types of `argument_schema`, defaults filled in; raises ProtocolError."""
        return batch if self.kind is Kind.ANY else self.arguments.checked(batch)

    def _result_fields(self) -> Sequence[pa.Field]:
        fields = [value.field(name) for name, value in self.results]
        if self.on_error is ErrorPolicy.RAISE:
            return fields
        (field,) = fields
        if self.on_error is ErrorPolicy.NULL:
            return [pa.field(field.name, field.type)]
        return [pa.field(field.name, error_struct(field.type), nullable=False)]

    def _fail_unless_consistent(self) -> None:
        what = f"function {self.name!r}"
        simple = self.kind is Kind.SCALAR and not self.signature.takes_iterator
        if self.on_error is not ErrorPolicy.RAISE and not simple:
            raise DeclarationError(f'{what}: on_error="{self.on_error.value}" is for functions that give a value a row')
        if self.batching is not None and self.load_timeout_seconds is not None:
            raise DeclarationError(f"{what} is batched: its load_timeout_seconds is that of Batching")
        if self.batching is not None and (not simple or self.signature.is_async):
            raise DeclarationError(f"{what}: batching is for functions that give a value a row, and not async")
        if self.signature.is_async and self.kind is not Kind.SCALAR:
            raise DeclarationError(f"{what} is async: only functions that give a value a row can be")
        if self.signature.form is Form.RECORD_BATCH and self.kind is not Kind.ANY:
            raise DeclarationError(f"{what} takes batches of any columns: its arguments need hints")
        columns = [*((argument.name, argument.value) for argument in self.signature.arguments), *self.results]
        columns += [] if self.state is None else [("state", self.state)]
        for name, value in columns:
            if has_dictionary(value.type):
                raise DeclarationError(
                    f"{name!r} of {what} is {value.type}: dictionaries cannot be sent, declare the type of their values"
                )

    def _fail_unless_in_effect(self, options: Options) -> None:
        """An option that does nothing for a function was meant to do something."""
        what = f"function {self.name!r}"
        if self.batching is not None and self.loads_in == "zygote":
            raise DeclarationError(f'{what} is batched, and its own process loads it: leave load="zygote" out')
        if not self.is_class and self.loads_in == "zygote":
            raise DeclarationError(f'{what} is no class, and nothing to load: make it one, or leave load="zygote" out')
        if not self.is_class and self.load_timeout_seconds is not None:
            raise DeclarationError(f"{what} is no class: make it one, or leave load_timeout_seconds out")
        if options.concurrency is not None and not self.signature.is_async:
            raise DeclarationError(f"{what} is not async: make it async, or leave concurrency out")
        if options.concurrency is not None and self.signature.form is not Form.ROWS:
            raise DeclarationError(
                f"{what} is called once for a whole batch: take plain values, or leave concurrency out"
            )


def error_struct(value: pa.DataType) -> pa.DataType:
    """The type of a result under ErrorPolicy.STRUCT."""
    return pa.struct([pa.field("value", value), pa.field("error", pa.string())])


def _check(options: Options) -> None:
    parts = options.name.split(".")
    if not all(parts) or not set(options.name) <= _NAME_CHARACTERS:
        raise DeclarationError(
            f"the name {options.name!r} of a function has to be of letters, digits and _, with dots between namespaces"
        )
    if not options.version or "@" in options.version or options.version.split() != [options.version]:
        raise DeclarationError(
            f"the version {options.version!r} of function {options.name!r} cannot be written behind @"
        )
    if options.loads_in not in ("worker", "zygote"):
        raise DeclarationError(f'load of function {options.name!r} is "worker" or "zygote", not {options.loads_in!r}')
    if options.concurrency is not None and options.concurrency < 1:
        raise DeclarationError(f"concurrency of function {options.name!r} has to be at least 1")
    if options.load_timeout_seconds is not None and not 0 <= options.load_timeout_seconds < math.inf:
        raise DeclarationError(f"load_timeout_seconds of function {options.name!r} has to be 0 or more seconds")
