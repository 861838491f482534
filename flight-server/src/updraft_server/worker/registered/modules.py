# SPDX-License-Identifier: Apache-2.0
"""Functions of a pool: built-in functions, which every pool has, and functions that modules of `--functions` define."""

import importlib
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import pyarrow as pa

from updraft import functions as declarations
from updraft.functions import Function, function
from updraft.functions.failures import describe
from updraft_server.ipc.load import Load
from updraft_server.worker.process_state import in_this_process
from updraft_server.worker.registered.functions import ModuleFault, RegisteredFunctions, Running, unnoted


@function(result=lambda schema: schema)
def echo(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return each batch unchanged: proves the path to a worker and back."""
    return batch


@function(name="builtin_echo")
def databend_echo(text: str | None) -> str | None:
    """Return the text: Databend and its Python client check with it whether a server answers."""
    return text


@function(name="builtin_healthy")
def databend_health() -> Annotated[int | None, pa.int32()]:
    """Return 1, for Databend's Python client."""
    return 1


BUILTIN = (echo, databend_echo, databend_health)


_DECLARATIONS = str(Path(declarations.__file__).parent)


def registered_functions(
    modules: Iterable[str],
    load_timeout_seconds: float = 0.0,
    *,
    broken: Mapping[Load, str] = MappingProxyType({}),
    running: Running = unnoted,
) -> RegisteredFunctions:
    """Return the built-in functions, the functions of the modules, and the faults of modules that fail to import.

    Args:
        modules: Names of the modules to import.
        load_timeout_seconds: Limit for each import, and for each function that sets no limit.
        broken: Loads to skip because they are known to crash or hang the process, with their faults.
        running: Returns a context to enter while the given load runs.
    """
    functions = RegisteredFunctions(BUILTIN, load_timeout_seconds)
    for name in modules:
        load = Load(name, limit_seconds=load_timeout_seconds)
        if load in broken:
            functions.module_faults.append(ModuleFault(name, broken[load]))
            continue
        try:
            with running(load), in_this_process():
                values = list(vars(importlib.import_module(name)).values())
        except BaseException as error:  # a panic of a Rust library is not an Exception
            fault = load.fault(f"{describe(error)}{_place(error)}")
            sys.stderr.write(f"updraft-server: {fault}\n")
            functions.module_faults.append(ModuleFault(name, fault))
            continue
        # Add the functions in the order of declaration. The order of the namespace differs if a name is bound again.
        defined = [value for value in values if isinstance(value, Function)]
        for each in sorted(defined, key=lambda each: each.number):
            functions.add(each)
    functions.load_for_workers(broken, running)
    return functions


def _place(error: BaseException) -> str:
    """Return where in a module the import failed; empty if Python's import system itself failed."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        # Skip frames of `updraft.functions`: if it refuses a declaration, the mistake is in the module.
        if "importlib" not in frame.filename and not frame.filename.startswith(_DECLARATIONS)
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
