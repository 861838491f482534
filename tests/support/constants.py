# SPDX-License-Identifier: Apache-2.0
"""Test values for a service's constants, in all processes of a service that the test starts as a program.

A test that runs the code in its own process uses pytest's `monkeypatch` instead.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

NOTHING: Mapping[str, object] = MappingProxyType({})

# Python imports this module before the program. The test replaces `VALUES`.
_HOOK = """
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


class Constants:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in VALUES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def run_and_replace(module):
            run(module)
            for constant, value in VALUES[name].items():
                getattr(module, constant)
                setattr(module, constant, value)

        spec.loader.exec_module = run_and_replace
        return spec


sys.meta_path.insert(0, Constants)
# Python imports only the first module of this name, and a test's clock has one too.
behind = PathFinder.find_spec(__name__, [entry for entry in sys.path if entry != __spec__.origin.rpartition("/")[0]])
if behind is not None:
    behind.loader.exec_module(module_from_spec(behind))
"""


def with_constants(
    directory: Path, values: Mapping[str, object], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a program in which constants have these values.

    Args:
        directory: Where the hook is written; it has to stay while the program starts processes.
        values: A value for each `package.module.CONSTANT`. A constant that does not exist fails the program.
        environment: All other variables.
    """
    if not values:
        return dict(environment)
    by_module: dict[str, dict[str, object]] = {}
    for path, value in values.items():
        module, _, constant = path.rpartition(".")
        by_module.setdefault(module, {})[constant] = value
    hook = directory / "constants"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(f"VALUES = {by_module!r}\n{_HOOK}")
    inherited = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{hook}{os.pathsep}{inherited}" if inherited else str(hook)}
