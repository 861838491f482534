# SPDX-License-Identifier: Apache-2.0
"""Command `updraft-writer`, which parses the settings and hands them to the supervisor."""

import sys
from typing import ClassVar

from pydantic_settings import BaseSettings, CliSubCommand, SettingsConfigDict

from updraft.service.command_line import Application, run_command_line
from updraft_writer.settings import ServeSettings, reference

_EXAMPLES = """examples:
  updraft-writer serve --root /data/tables
  updraft-writer serve --root s3://bucket/tables --quota-bytes 2147483648
  updraft-writer serve --listen 0.0.0.0:8816 --root hdfs://namenode/warehouse --token-file tokens \\
      --tls-certificate-file tls.crt --tls-key-file tls.key
"""


class Serve(ServeSettings):  # noqa: D101 - the help text is that of the settings
    __doc__ = ServeSettings.__doc__
    examples: ClassVar[str] = _EXAMPLES

    def cli_cmd(self) -> None:
        """Run the writer until it is stopped."""
        from updraft_writer.supervisor import supervise

        sys.exit(supervise(self))


class Docs(BaseSettings):
    """Print the reference page of all settings."""

    def cli_cmd(self) -> None:
        """Print the contents of docs/reference/writer.md."""
        sys.stdout.write(reference())


class UpdraftWriter(Application):
    """A service that writes Parquet and ORC asynchronously, under a quota of bytes."""

    model_config = SettingsConfigDict(cli_prog_name="updraft-writer")

    serve: CliSubCommand[Serve]
    docs: CliSubCommand[Docs]


def main() -> None:
    """Run the command `updraft-writer`."""
    run_command_line(UpdraftWriter)
