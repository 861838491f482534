# SPDX-License-Identifier: Apache-2.0
"""Names of settings in errors: options of the service, or values of the Helm chart where the chart has set it up.

Code names a setting by its option. Somebody who installed the chart has no command line to change.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from updraft.errors import UpdraftError, UserError

_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: of the (?:pool|writer))?")


def camel_case(setting: str) -> str:
    """Return a setting's name as the chart spells it: `maxExchanges` for `max_exchanges`."""
    first, *others = setting.split("_")
    return first + "".join(other.capitalize() for other in others)


class ChartValues:
    """The values of one pool or writer, under which its settings stand."""

    def __init__(self, component: str, value_of: Callable[[str], str | None]) -> None:
        """Name settings by values.

        Args:
            component: Path of the component's values, such as `pools.default`; empty without the chart.
            value_of: Return the path below it of a setting (`max_exchanges`), or None if no value sets it.
        """
        self._component = component
        self._value_of = value_of

    def named(self, text: str) -> str:
        """Return a text with the chart's values in place of options."""
        return _OPTION.sub(self._name, text) if self._component else text

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Name settings so in errors that the service raises in the block; leave those of functions as they are."""
        try:
            yield
        except UpdraftError as error:
            if not isinstance(error, UserError):
                error.message = self.named(error.message)
            raise

    def _name(self, option: re.Match[str]) -> str:
        value = self._value_of(option[1].replace("-", "_"))
        return option[0] if value is None else f"{self._component}.{value} of the chart"
