# SPDX-License-Identifier: Apache-2.0
"""Scenarios by the part of Spark that starts the workers."""

import importlib
import pkgutil


def import_all() -> None:
    """Import every module of scenarios, which fills `tests.workers.scenario.SCENARIOS`."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
