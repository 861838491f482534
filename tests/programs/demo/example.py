# SPDX-License-Identifier: Apache-2.0
"""Demo job, docs/examples/flights.py, as a module whose functions are pickled by value, like those of a script."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from pyspark import cloudpickle

from tests.support.paths import REPOSITORY

_NAME = "flights"


def example() -> ModuleType:
    """Return the module of the job."""
    spec = importlib.util.spec_from_file_location(_NAME, REPOSITORY / f"docs/examples/{_NAME}.py")
    assert spec is not None
    assert spec.loader is not None
    job = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = job
    spec.loader.exec_module(job)
    cloudpickle.register_pickle_by_value(job)
    return job
