# SPDX-License-Identifier: Apache-2.0
"""Description of a registered function for people: its signature, what it does, and how it is called."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from updraft.v1 import control_pb2
from updraft.v1.control_pb2 import FunctionDescription, FunctionKind

_KINDS = {
    FunctionKind.FUNCTION_KIND_SCALAR: "scalar function: one value for each row",
    FunctionKind.FUNCTION_KIND_TABLE: "table function: any number of rows for each row",
    FunctionKind.FUNCTION_KIND_AGGREGATE: "aggregate: one value for each group of rows",
}
_ANY_COLUMNS = "function of any columns: as many rows out as in"
_POLICIES = {
    control_pb2.ERROR_POLICY_NULL: "the result of a failing row is null",
    control_pb2.ERROR_POLICY_STRUCT: "the result of a failing row is a struct with its error",
}
_OF_EVERY_POOL = "echo"
_RAISES = "a failing row fails the query"


class DescribedFunction:
    """One version of a function, as its pool describes it."""

    def __init__(self, description: FunctionDescription, *, is_default: bool) -> None:
        self.description = description
        self.is_default = is_default
        self._arguments = _fields(description.argument_schema)
        self._results = _fields(description.result_schema)

    @property
    def signature(self) -> str:
        """Signature in Arrow's types, with the defaults as Python writes them."""
        name = self.description.name
        if self._arguments is None:
            return f"{name}(any columns)"
        declared = [_declared(field) for field in self._arguments]
        # Defaults belong to the last arguments. Surplus defaults, which only a faulty pool sends, are left out.
        for place, default in zip(reversed(range(len(declared))), reversed(self.description.defaults), strict=False):
            declared[place] += f" = {default}"
        arguments = ", ".join(declared)
        return f"{name}({arguments}) -> {self._result()}"

    def lines(self) -> Iterator[str]:
        """Yield the lines that `updraft functions describe` prints."""
        description = self.description
        yield self.signature
        if description.doc:
            yield ""
            yield from description.doc.splitlines()
        yield ""
        for heading, text in self._facts():
            yield f"{heading:<10}{text}"
        yield ""
        for heading, text in self._calls():
            yield f"{heading:<10}{text}"

    def report(self) -> dict[str, Any]:
        """Return the description for programs."""
        description = self.description
        return {
            "name": description.name,
            "version": description.version,
            "is_default": self.is_default,
            "signature": self.signature,
            "doc": description.doc,
            "owner": description.owner,
            "tags": list(description.tags),
            "deterministic": description.deterministic,
            "fault": description.fault,
            "fault_is_final": description.fault_is_final,
            "calls": dict(self._calls()),
        }

    def _result(self) -> str:
        if self._results is None:
            return "any column"
        if self.description.kind == FunctionKind.FUNCTION_KIND_TABLE:
            return f"table({', '.join(map(_declared, self._results))})"
        return _type(self._results[0])

    def _facts(self) -> Iterator[tuple[str, str]]:
        description = self.description
        if description.fault:
            yield "fault" if description.fault_is_final else "unhealthy", description.fault
        if description.version:
            yield "version", description.version + (", the default" if self.is_default else "")
        yield "kind", _KINDS.get(description.kind, _ANY_COLUMNS)
        yield "errors", _POLICIES.get(description.error_policy, _RAISES)
        if description.batched:
            yield "batches", "rows of several callers, joined in separate processes of the function"
        if not description.deterministic:
            yield "results", "differ from call to call"
        if description.owner:
            yield "owner", description.owner
        if description.tags:
            yield "tags", ", ".join(description.tags)

    def _calls(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each language and an example call, in which columns have the names of the arguments."""
        description = self.description
        version = "" if self.is_default else description.version
        if self._arguments is not None:
            columns = [field.name for field in self._arguments]
            is_table = description.kind == FunctionKind.FUNCTION_KIND_TABLE
            called = f"{_sql_name(description.name, version)}({', '.join(columns)})"
            yield "SQL", f"SELECT {'* FROM ' if is_table else ''}{called}"  # noqa: S608 - shown, and never run
            if not is_table:
                pinned = [f"version={json.dumps(version)}"] if version else []
                yield "Python", f"call({', '.join([*map(json.dumps, [description.name, *columns]), *pinned])})"
        path = [description.name, *([version] if version else [])]
        yield "Flight", f"FlightDescriptor.for_path({', '.join(map(json.dumps, path))})"


def described(name: str, functions: Sequence[FunctionDescription]) -> list[DescribedFunction]:
    """Return all versions of a function, or the one version that NAME@VERSION names."""
    plain, _, version = name.partition("@")
    versions = (each for each in _all(functions) if each.description.name == plain)
    return [each for each in versions if version in ("", each.description.version)]


def at_fault(reason: str, *, is_final: bool) -> str:
    """Return a line that says what is wrong with a function.

    A pool still tries calls of an unhealthy function. Old pools never report that a fault is final.
    """
    return f"cannot be called: {reason}" if is_final else f"unhealthy: {reason}"


def listed(functions: Sequence[FunctionDescription]) -> Iterator[str]:
    """Yield a line for each function except `echo`, which every pool has: its signature, or its fault."""
    for each in _all(functions):
        description = each.description
        if description.fault:
            yield at_fault(f"{description.name}: {description.fault}", is_final=description.fault_is_final)
        elif description.name != _OF_EVERY_POOL:
            yield each.signature if each.is_default else f"{each.signature}, version {description.version}"


def _all(functions: Sequence[FunctionDescription]) -> list[DescribedFunction]:
    """Return every version of every function; a call without a version runs the last version of the name."""
    defaults = {function.name: function for function in functions}
    return [DescribedFunction(function, is_default=function is defaults[function.name]) for function in functions]


def _sql_name(name: str, version: str) -> str:
    """Return the function's name in the catalog `updraft`. A version follows the name's last part, after `@`."""
    *namespaces, last = name.split(".")
    if version:
        last = f"`{last}@{version}`"
    return ".".join(("updraft", "default", *namespaces, last))


def _fields(schema: bytes) -> list[pa.Field] | None:
    return list(pa.ipc.read_schema(pa.py_buffer(schema))) if schema else None


def _declared(field: pa.Field) -> str:
    return f"{field.name}: {_type(field)}"


def _type(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
