# SPDX-License-Identifier: Apache-2.0
"""Shared code of the command lines: help that explains values, and one-line errors.

`updraft-server`, `updraft-writer` and `updraft` are pydantic-settings applications with subcommands. Their help shows
placeholders such as ADDRESS, SECONDS and BYTES where argparse would show Python types. The help of a subcommand ends
with its `examples`.
"""

import argparse
import inspect
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args
from urllib.parse import quote, unquote

from pydantic import AfterValidator, BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, SettingsConfigDict

# Texts that argparse shows for a setting without a plain default.
_MEANINGLESS_DEFAULT = re.compile(r" ?\(default: (None|\(\)|\[\]|)\)| ?\(default factory: .*\)")

_ENCODED = "verbatim:"


def _encoded(text: str) -> str:
    return _ENCODED + quote(text, safe="")


def _decoded(text: str) -> str:
    return unquote(text.removeprefix(_ENCODED)) if text.startswith(_ENCODED) else text


Verbatim = Annotated[str, AfterValidator(_decoded)]
"""Value of a repeatable option (`list[Verbatim]`) that may contain commas, quotes and brackets.

pydantic-settings would split plain text at commas, and read it as JSON.
"""


class Application(BaseSettings):
    """Base of every command; a command adds its subcommands and its `cli_prog_name`."""

    model_config = SettingsConfigDict(
        cli_kebab_case=True, cli_implicit_flags=True, cli_hide_none_type=True, cli_avoid_json=True
    )

    # Distribution whose version is printed; empty if it has the command's name.
    distribution: ClassVar[str] = ""

    version: bool = Field(default=False, description="Print the version and end.")

    def cli_cmd(self) -> None:
        """Run the chosen command."""
        name = str(self.model_config["cli_prog_name"])
        if self.version:
            sys.stdout.write(f"{name} {version(self.distribution or name)}\n")
        else:
            CliApp.run_subcommand(self)


def run_command_line(application: type[Application]) -> None:
    """Run `application` with the arguments of this process; exit with status 2 if a setting is invalid."""
    command = str(application.model_config["cli_prog_name"])
    try:
        source = _source_of(application)
        CliApp.run(application, cli_settings_source=source)
    except ValidationError as refused:
        for error in refused.errors():
            sys.stderr.write(f"{command}: {_explained(error['loc'], error['msg'])}\n")
        sys.exit(2)


def parser_of(application: type[Application]) -> argparse.ArgumentParser:
    """Return the parser of an application's command line."""
    parser: argparse.ArgumentParser = _source_of(application).root_parser
    return parser


def _source_of(application: type[Application]) -> CliSettingsSource[Any]:
    source: CliSettingsSource[Any] = CliSettingsSource(application, cli_parse_args=False)
    _explain_subcommands(source.root_parser, str(application.model_config["cli_prog_name"]), application)
    return source


def _explain_subcommands(parser: argparse.ArgumentParser, command: str, application: type[BaseModel]) -> None:
    subcommands = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for name, subparser in (choice for action in subcommands for choice in action.choices.items()):
        model = _model_of(application.model_fields[name])
        _explain_subcommands(subparser, f"{command} {name}", model)
        positional = [
            action
            for action in subparser._actions
            if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
        ]
        names = {action: action.dest.rpartition(".")[2].upper() for action in positional}
        arguments = "".join(f" [{name}]" if action.nargs == "?" else f" {name}" for action, name in names.items())
        subparser.usage = f"{command} {name}{arguments} [options]"
        subparser.description = inspect.cleandoc(model.__doc__ or "")
        subparser.epilog = getattr(model, "examples", None)
        subparser.formatter_class = argparse.RawDescriptionHelpFormatter
        for action in subparser._actions:
            field = model.model_fields.get(action.dest.rpartition(".")[2])
            if field is not None:
                _explain(action, field)
                if field.annotation == list[Verbatim]:
                    action.type = _encoded


def _model_of(subcommand: FieldInfo) -> type[BaseModel]:
    """Return the model of a CliSubCommand field, whose type is the model or None."""
    model: type[BaseModel] = next(kind for kind in get_args(subcommand.annotation) if kind is not type(None))
    return model


def _explain(action: argparse.Action, field: FieldInfo) -> None:
    if action.nargs != 0 and not action.choices:
        name = action.dest.rpartition(".")[2]
        action.metavar = action.metavar if str(action.metavar).startswith("{") else _metavar(name, field)
    action.help = _MEANINGLESS_DEFAULT.sub("", str(action.help))


def _metavar(name: str, field: FieldInfo) -> str:
    extra: Any = field.json_schema_extra
    unit = str(extra["unit"])
    if unit:
        return unit.upper()
    if name.endswith("endpoint"):
        return "URL"
    if name.endswith("listen"):
        return "ADDRESS"
    return "PATH" if Path in (field.annotation, *get_args(field.annotation)) else name.rpartition("_")[2].upper()


def _explained(location: tuple[int | str, ...], reason: str) -> str:
    reason = reason.removeprefix("Value error, ")
    names = [part for part in location if isinstance(part, str)]
    if len(names) < 2:
        return reason
    return f"--{names[-1].replace('_', '-')}: {reason[0].lower()}{reason[1:]}"
