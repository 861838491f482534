# SPDX-License-Identifier: Apache-2.0
"""Command `updraft-server`: parses the settings and hands them to the supervisor."""

import sys
from collections.abc import Callable
from typing import ClassVar, NoReturn

from pydantic_settings import BaseSettings, CliSubCommand, SettingsConfigDict

from updraft.service.command_line import Application, run_command_line
from updraft_server.settings import SeparateFrontSettings, SeparateWorkersSettings, ServeSettings, reference


class Serve(ServeSettings):  # noqa: D101 - the help text is that of the settings
    __doc__ = ServeSettings.__doc__
    examples: ClassVar[str] = """examples:
  updraft-server serve --workers 4
  updraft-server serve --functions my_package.functions --listen-unix /run/updraft/pool.sock
  updraft-server serve --session-functions=unsigned --listen 0.0.0.0:8815 --token-file tokens \\
      --tls-certificate-file tls.crt --tls-key-file tls.key
"""

    def cli_cmd(self) -> None:
        """Run the pool until it is told to stop."""
        from updraft_server.supervisor.commands import supervise

        _end_with(lambda: supervise(self.with_free_ports()))


class Front(SeparateFrontSettings):  # noqa: D101 - the help text is that of the settings
    __doc__ = SeparateFrontSettings.__doc__
    examples: ClassVar[str] = """examples:
  updraft-server front --runtime-directory /run/updraft/front --workers 4
  updraft-server workers --front-directory /run/updraft/front
"""

    def cli_cmd(self) -> None:
        """Run the front until it is told to stop."""
        from updraft_server.supervisor.commands import supervise_front

        _end_with(lambda: supervise_front(self.with_free_ports()))


class Workers(SeparateWorkersSettings):  # noqa: D101 - the help text is that of the settings
    __doc__ = SeparateWorkersSettings.__doc__
    examples: ClassVar[str] = Front.examples

    def cli_cmd(self) -> None:
        """Run the workers until a signal stops them and their front has ended."""
        from updraft_server.supervisor.commands import supervise_workers

        _end_with(lambda: supervise_workers(self))


def _end_with(supervise: Callable[[], int]) -> NoReturn:
    try:
        status = supervise()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"updraft-server: cannot start: {where}{error.strerror}\n")
        status = 2
    sys.exit(status)


class Docs(BaseSettings):
    """Print the reference page of all settings."""

    def cli_cmd(self) -> None:
        """Print the content of docs/reference/server.md."""
        sys.stdout.write(reference())


class UpdraftServer(Application):
    """A pool of Python workers that runs functions sent over Arrow Flight."""

    model_config = SettingsConfigDict(cli_prog_name="updraft-server")

    serve: CliSubCommand[Serve]
    front: CliSubCommand[Front]
    workers: CliSubCommand[Workers]
    docs: CliSubCommand[Docs]


def main() -> None:
    """Run `updraft-server`."""
    run_command_line(UpdraftServer)
