# SPDX-License-Identifier: Apache-2.0
"""Explains a module that a function imports and the pool lacks: its author has seen it work on the driver."""

import platform

_HOW_TO_ADD = (
    "functions import from the Python environment of the pool's image, not from that of the driver or the"
    " executors. Add the package to the image (docs/guides/install.md), or send it with the session:"
    " spark.submit.pyFiles, addPyFile or addArtifacts (docs/what-travels.md)"
)


def explain_missing_module(error: BaseException) -> None:
    """Add a note (PEP 678) to an error that is, or was raised from, a ModuleNotFoundError."""
    if _is_of_a_missing_module(error):
        error.add_note(f"It ran on the Updraft pool at {platform.node()}, where {_HOW_TO_ADD}")


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
