# SPDX-License-Identifier: Apache-2.0
"""Values of the Helm chart, below `writer`, that configure a writer."""

from updraft.service.setting_names import camel_case
from updraft_writer.settings import ServeSettings

_OWN_VALUES = {"drain_timeout_seconds": "drainTimeoutSeconds", "root": "roots"}


def value_of(setting: str) -> str | None:
    """Return the value that sets `setting`, as a path below `writer`, or None if a writer has no such setting."""
    if setting in _OWN_VALUES:
        return _OWN_VALUES[setting]
    return f"settings.{camel_case(setting)}" if setting in ServeSettings.model_fields else None
