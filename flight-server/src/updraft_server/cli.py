# SPDX-License-Identifier: Apache-2.0
"""The command `updraft-server`: parses the settings and hands them to the supervisor."""

import sys
from typing import ClassVar

from pydantic_settings import BaseSettings, CliSubCommand, SettingsConfigDict

from updraft.service.command_line import Application, run_command_line
from updraft_server.settings import ServeSettings, reference

_EXAMPLES = """examples:
  updraft-server serve --workers 4
  updraft-server serve --functions my_package.functions --listen-unix /run/updraft/pool.sock
  updraft-server serve --allow-session-functions --listen 0.0.0.0:8815 --token-file tokens \\
      --tls-certificate-file tls.crt --tls-key-file tls.key
"""


class Serve(ServeSettings):  # noqa: D101 - the help text is that of the settings
    __doc__ = ServeSettings.__doc__
    examples: ClassVar[str] = _EXAMPLES

    def cli_cmd(self) -> None:
        """Run the pool until it is told to stop."""
        from updraft_server.supervisor.supervisor import supervise

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
        sys.stdout.write(reference())


class UpdraftServer(Application):
    """A pool of Python workers that runs functions sent over Arrow Flight."""

    model_config = SettingsConfigDict(cli_prog_name="updraft-server")

    serve: CliSubCommand[Serve]
    docs: CliSubCommand[Docs]


def main() -> None:
    """Entry point of `updraft-server`."""
    run_command_line(UpdraftServer)
