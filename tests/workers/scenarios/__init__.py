# SPDX-License-Identifier: Apache-2.0
"""Scenarios, in one module for each part of Spark that starts workers."""

import importlib
import pkgutil


def import_all() -> None:
    """Import every module of scenarios; each import adds to `tests.workers.scenario.SCENARIOS`."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
