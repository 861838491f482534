# SPDX-License-Identifier: Apache-2.0
"""The command `updraft-server`: parses the settings and hands them to the supervisor."""

import sys
from importlib.metadata import version
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, CliSubCommand, SettingsConfigDict

from updraft_server.help_text import explain_serve
from updraft_server.settings import ServeSettings, reference_page


class Serve(ServeSettings):  # noqa: D101 - the help text is that of the settings
    __doc__ = ServeSettings.__doc__

    def cli_cmd(self) -> None:
        """Run the pool until it is told to stop."""
        from updraft_server.supervisor import supervise

        try:
            status = supervise(self.with_free_ports())
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            sys.stderr.write(f"updraft-server: cannot start: {where}{error.strerror}\n")
            status = 2
        sys.exit(status)


class Docs(BaseSettings):
    """Print the reference page of all settings."""

    def cli_cmd(self) -> None:
        """Print what docs/reference/server.md holds."""
        sys.stdout.write(reference_page())


class UpdraftServer(BaseSettings):
    """A pool of Python workers that runs functions sent over Arrow Flight."""

    model_config = SettingsConfigDict(
        cli_prog_name="updraft-server",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )

    version: bool = Field(default=False, description="Print the version and end.")
    serve: CliSubCommand[Serve]
    docs: CliSubCommand[Docs]

    def cli_cmd(self) -> None:
        """Run the chosen command."""
        if self.version:
            sys.stdout.write(f"updraft-server {version('updraft-server')}\n")
        else:
            CliApp.run_subcommand(self)


def main() -> None:
    """Entry point of `updraft-server`; bad settings end with status 2 and one line for each."""
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(UpdraftServer, cli_parse_args=False)
        explain_serve(source.root_parser)
        CliApp.run(UpdraftServer, cli_settings_source=source)
    except ValidationError as refused:
        for error in refused.errors():
            sys.stderr.write(f"updraft-server: {_explained(error['loc'], error['msg'])}\n")
        sys.exit(2)


def _explained(location: tuple[int | str, ...], reason: str) -> str:
    reason = reason.removeprefix("Value error, ")
    names = [part for part in location if isinstance(part, str)]
    if len(names) < 2:
        return reason
    return f"--{names[-1].replace('_', '-')}: {reason[0].lower()}{reason[1:]}"
