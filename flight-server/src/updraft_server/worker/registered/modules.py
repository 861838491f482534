# SPDX-License-Identifier: Apache-2.0
"""Imports the modules of `--functions` and collects the functions that stand in them."""

import importlib
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from updraft import functions as declarations
from updraft.functions import Function
from updraft.functions.failures import describe
from updraft_server.worker.registered.builtin import BUILTIN
from updraft_server.worker.registered.functions import ModuleFault, RegisteredFunctions, Running, unnoted

_DECLARATIONS = str(Path(declarations.__file__).parent)


def registered_functions(
    modules: Iterable[str],
    *,
    broken: Mapping[str, str] = MappingProxyType({}),
    running: Running = unnoted,
) -> RegisteredFunctions:
    """What every pool has, and all that the modules define. Of one that cannot be imported the fault is known.

    Args:
        modules: To import.
        broken: Those that are known to end the process, with their fault: they are not imported.
        running: Entered with a module's name while its code runs.
    """
    functions = RegisteredFunctions(BUILTIN)
    for name in modules:
        if name in broken:
            functions.module_faults.append(ModuleFault(name, broken[name]))
            continue
        try:
            with running(name):
                module = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            fault = f"the module {name!r} of --functions cannot be imported: {describe(error)}{_place(error)}"
            sys.stderr.write(f"updraft-server: {fault}\n")
            functions.module_faults.append(ModuleFault(name, fault))
            continue
        # A name that is bound again keeps its place among the others.
        defined = [value for value in vars(module).values() if isinstance(value, Function)]
        for function in sorted(defined, key=lambda function: function.number):
            functions.add(function)
    functions.load_for_workers(running)
    return functions


def _place(error: BaseException) -> str:
    """Where in a module the import failed; empty if Python's import system itself failed."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        # A declaration that is refused is the module's mistake.
        if "importlib" not in frame.filename and not frame.filename.startswith(_DECLARATIONS)
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
