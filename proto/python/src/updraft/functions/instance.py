# SPDX-License-Identifier: Apache-2.0
"""Author's code, ready to be called: an instance if it is a class."""

from collections.abc import Callable
from typing import Any

from updraft.functions.definition import Function


class Instance:
    """Callable code of a function."""

    def __init__(self, function: Function[Any, Any]) -> None:
        """Construct the function's class, if it is one; raise whatever the constructor raises."""
        self.object: Any = function.target() if function.is_class else function.target

    @property
    def call(self) -> Callable[..., Any]:
        """Author's function, or the callable instance of the author's class."""
        call: Callable[..., Any] = self.object
        return call

    def warm_up(self) -> None:
        """Call the author's `warm_up`, if there is one; raise whatever that raises."""
        warm_up = getattr(self.object, "warm_up", None)
        if callable(warm_up):
            warm_up()
