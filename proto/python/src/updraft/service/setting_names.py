# SPDX-License-Identifier: Apache-2.0
"""Names of settings in errors: the names under which the reader of the error has set the settings.

Code names a setting by its command-line option. Users of the Helm chart set a value instead, and users of
`local_pool()` set an argument.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from updraft.errors import UpdraftError, UserError

_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: of the (?:pool|writer))?")


# Only the Helm chart and `local_pool()` set this variable; users have no reason to set it.
_CONFIGURED_BY_VARIABLE = "UPDRAFT_CONFIGURED_BY"


def configured_by() -> str:
    """Return where this service's settings are written, as UPDRAFT_CONFIGURED_BY says; empty for a command line."""
    return os.environ.get(_CONFIGURED_BY_VARIABLE, "")


def camel_case(setting: str) -> str:
    """Return a setting's name as the chart spells it: `queueLimit` for `queue_limit`."""
    first, *others = setting.split("_")
    return first + "".join(other.capitalize() for other in others)


class SettingNames:
    """Names of one service's settings."""

    def __init__(self, configured_by: str, value_of: Callable[[str], str | None]) -> None:
        """Describe how the settings were set.

        Args:
            configured_by: A Python function such as `local_pool()`, the path of the chart's values for the service,
                such as `pools.default`, or empty for a command line.
            value_of: Function that returns the path of a setting (`queue_limit`) below the chart's values, or None if
                the chart does not set it.
        """
        self._configured_by = configured_by
        self._value_of = value_of

    def named(self, text: str) -> str:
        """Return the text with each option replaced with the name under which the setting was set."""
        return _OPTION.sub(self._name, text) if self._configured_by else text

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Rename settings in the service's errors from the block; leave errors of functions unchanged."""
        try:
            yield
        except UpdraftError as error:
            if not isinstance(error, UserError):
                error.message = self.named(error.message)
            raise

    def _name(self, option: re.Match[str]) -> str:
        setting = option[1].replace("-", "_")
        if self._configured_by.endswith("()"):
            return f"{setting} of {self._configured_by}"
        value = self._value_of(setting)
        return option[0] if value is None else f"{self._configured_by}.{value} of the chart"
