# SPDX-License-Identifier: Apache-2.0
"""The command line of a service: help that says what a value is, refusals in one line each.

`updraft-server` and `updraft-writer` are pydantic-settings applications with a subcommand `serve`; what argparse would
say about Python types, ADDRESS, SECONDS and BYTES say about values.
"""

import argparse
import re
import sys
from importlib.metadata import version
from typing import Any

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, SettingsConfigDict

from updraft.settings import Settings

# argparse shows what a setting without a plain default has: nothing that a person could use.
_MEANINGLESS_DEFAULT = re.compile(r" ?\(default: (None|\(\))\)| ?\(default factory: .*\)")


class ServiceApplication(BaseSettings):
    """What `updraft-...` without a subcommand knows; a service adds `serve` and its own `cli_prog_name`."""

    model_config = SettingsConfigDict(
        cli_kebab_case=True, cli_implicit_flags=True, cli_hide_none_type=True, cli_avoid_json=True
    )

    version: bool = Field(default=False, description="Print the version and end.")

    def cli_cmd(self) -> None:
        """Run the chosen command."""
        name = str(self.model_config["cli_prog_name"])
        if self.version:
            sys.stdout.write(f"{name} {version(name)}\n")
        else:
            CliApp.run_subcommand(self)


def run_command_line(application: type[ServiceApplication], serve: type[Settings], *, examples: str) -> None:
    """Run `application`, whose subcommand `serve` has the settings of `serve`; bad settings end with status 2."""
    command = str(application.model_config["cli_prog_name"])
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(application, cli_parse_args=False)
        _explain_serve(source.root_parser, command, serve, examples)
        CliApp.run(application, cli_settings_source=source)
    except ValidationError as refused:
        for error in refused.errors():
            sys.stderr.write(f"{command}: {_explained(error['loc'], error['msg'])}\n")
        sys.exit(2)


def _explain_serve(parser: argparse.ArgumentParser, command: str, settings: type[Settings], examples: str) -> None:
    subcommands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    serve = subcommands.choices["serve"]
    serve.usage = f"{command} serve [options]"
    serve.epilog = examples
    serve.formatter_class = argparse.RawDescriptionHelpFormatter
    for action in serve._actions:
        field = settings.model_fields.get(action.dest.rpartition(".")[2])
        if field is not None:
            _explain(action, field)


def _explain(action: argparse.Action, field: FieldInfo) -> None:
    if action.nargs != 0 and not action.choices:
        action.metavar = action.metavar if str(action.metavar).startswith("{") else _metavar(action.dest, field)
    action.help = _MEANINGLESS_DEFAULT.sub("", str(action.help))


def _metavar(name: str, field: FieldInfo) -> str:
    extra: Any = field.json_schema_extra
    unit = str(extra["unit"])
    if unit:
        return unit.upper()
    if name.endswith("endpoint"):
        return "URL"
    return "ADDRESS" if name.endswith("listen") else "PATH"


def _explained(location: tuple[int | str, ...], reason: str) -> str:
    reason = reason.removeprefix("Value error, ")
    names = [part for part in location if isinstance(part, str)]
    if len(names) < 2:
        return reason
    return f"--{names[-1].replace('_', '-')}: {reason[0].lower()}{reason[1:]}"
