# SPDX-License-Identifier: Apache-2.0
"""Contract between Updraft's services and their clients, in Python: messages, errors, Arrow bytes.

Authors of registered functions write `from updraft import function`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from updraft.functions import function

__all__ = ["function"]


def __getattr__(name: str) -> Any:
    # Import `function` late: only authors of functions use it, and importing it would slow down clients and services.
    if name == "function":
        from updraft.functions import function

        return function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
