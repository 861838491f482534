# SPDX-License-Identifier: Apache-2.0
"""Explains a module that a function imports and the pool lacks: its author has seen it work on the driver."""

import platform
import sys

_HOW_TO_ADD = (
    "and from what the session sends. Install the package there (where the pool runs in containers, build it into the"
    " image), or send it with the session: spark.submit.pyFiles, addPyFile or addArtifacts"
)


def explain_missing_module(error: BaseException) -> None:
    """Add a note (PEP 678) to an error that is, or was raised from, a ModuleNotFoundError."""
    if _is_of_a_missing_module(error):
        pool = f"the Updraft pool at {platform.node()}"
        error.add_note(f"It ran on {pool}, where functions import from the Python in {sys.prefix} {_HOW_TO_ADD}")


def _is_of_a_missing_module(error: BaseException) -> bool:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, ModuleNotFoundError):
            return True
        seen.add(id(cause))
        # What a function does about a module that it can do without is its own affair: no __context__.
        cause = cause.__cause__
    return False
