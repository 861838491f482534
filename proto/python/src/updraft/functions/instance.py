# SPDX-License-Identifier: Apache-2.0
"""The author's code, constructed where it is a class."""

from collections.abc import Callable
from typing import Any

from updraft.functions.definition import Function


class Instance:
    """What is called for rows."""

    def __init__(self, function: Function[Any, Any]) -> None:
        """Raises whatever the constructor raises."""
        self.object: Any = function.target() if function.is_class else function.target

    @property
    def call(self) -> Callable[..., Any]:
        """A function, or the method of an object that is called like one."""
        call: Callable[..., Any] = self.object
        return call

    def warm_up(self) -> None:
        """Call the author's `warm_up`, if there is one; raises whatever that raises."""
        warm_up = getattr(self.object, "warm_up", None)
        if callable(warm_up):
            warm_up()
