# SPDX-License-Identifier: Apache-2.0
"""Declaration of a service's settings. Each setting is declared once, with its description, unit, default and checks.

A setting is a field of a `Settings` class, created by `setting()`. That one declaration produces the command-line
option (`--drain-timeout-seconds`), the environment variable (`UPDRAFT_DRAIN_TIMEOUT_SECONDS`), the checks, `--help`
and the reference page (`reference_page`).
"""

import copy
import types
from collections.abc import Container, Iterator
from typing import Any, Union, get_args, get_origin

import annotated_types
from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, SettingsConfigDict

ENVIRONMENT_PREFIX = "UPDRAFT_"


class Settings(BaseSettings):
    """Base of a service's settings: values come from options, then UPDRAFT_* variables, then defaults."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid")


def setting(doc: str, *, default: Any = PydanticUndefined, unit: str = "", common: bool = False, **checks: Any) -> Any:
    """Declare a setting.

    Args:
        doc: Description for `--help` and the reference page: what the setting controls or does, then when to change the
            setting.
        default: Default value; without one, the setting is required.
        unit: Unit of the value, shown with the description; empty for texts and flags.
        common: Whether most operators set it. The first table of the reference page has these settings.
        checks: Pydantic's checks (`gt=0`, `le=65535`) and other arguments of its `Field`.
    """
    described = f"{doc} [{unit}]" if unit else doc
    extra: dict[str, Any] = {"doc": doc, "unit": unit, "common": common}
    return Field(default=default, description=described, json_schema_extra=extra, **checks)


def split_at_commas(value: object) -> object:
    """Return the texts of a repeatable setting: the environment gives one string, the command line a list."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def restated(settings: type[Settings], name: str, *, default: Any = PydanticUndefined) -> Any:
    """Return the setting `name` of another class, with `default` as its default, if given."""
    field = copy.copy(settings.model_fields[name])
    if default is not PydanticUndefined:
        field.default = default
    return field


def reference_page(command: str, settings: type[Settings]) -> str:
    """Return the reference page of `command serve`, in Markdown: the common settings first, then the rest."""
    common = {name for name, field in settings.model_fields.items() if _extra(name, field)["common"]}
    return f"""# Settings of `{command} serve`

Written by `make docs` from the settings' own declarations. An option wins over its environment variable.

## Common settings

{reference_table(settings, common)}
## Other settings

{reference_table(settings, settings.model_fields.keys() - common)}"""


def reference_table(settings: type[Settings], only: Container[str] | None = None) -> str:
    """Return the settings in `only`, or all, as a Markdown table: option, variable, default, values and meaning."""
    rows = ["| option | environment | default | values | meaning |", "| --- | --- | --- | --- | --- |"]
    rows.extend(_row(name, field) for name, field in settings.model_fields.items() if only is None or name in only)
    return "\n".join(rows) + "\n"


def _extra(name: str, field: FieldInfo) -> dict[str, Any]:
    """Return the arguments that `setting()` has stored in the field."""
    extra = field.json_schema_extra
    assert isinstance(extra, dict), f"{name} was not declared with setting()"
    return extra


def _row(name: str, field: FieldInfo) -> str:
    extra = _extra(name, field)
    option = f"`--{name.replace('_', '-')}`"
    environment = f"`{ENVIRONMENT_PREFIX}{name.upper()}`"
    return f"| {option} | {environment} | {_default(field)} | {_values(field)} | {extra['doc']} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "computed"
    if field.default in (None, "", ()):
        return "none"
    if isinstance(field.default, bool):
        return "on" if field.default else "off"
    return f"`{field.default}`"


def _values(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    unit = extra.get("unit") if isinstance(extra, dict) else None
    parts = [str(unit)] if unit else [_type_name(field.annotation)]
    parts.extend(_checks(field))
    return ", ".join(parts)


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_type_name(choice) for choice in get_args(annotation) if choice is not type(None))
    choices = get_args(annotation)
    if choices:
        return " or ".join(f"`{choice}`" for choice in choices)
    name: str = annotation.__name__
    return {"str": "text", "bool": "flag", "int": "number", "float": "number", "Path": "path"}.get(name, name)


def _checks(field: FieldInfo) -> Iterator[str]:
    for check in field.metadata:
        match check:
            case annotated_types.Gt(bound):
                yield f"more than {bound}"
            case annotated_types.Ge(bound):
                yield f"at least {bound}"
            case annotated_types.Lt(bound):
                yield f"less than {bound}"
            case annotated_types.Le(bound):
                yield f"at most {bound}"
