# SPDX-License-Identifier: Apache-2.0
"""Command `updraft`, for writing functions and operating pools and writers, with one subcommand for each task."""

import sys
from typing import ClassVar, Literal

import grpc
import pyarrow as pa
from pyarrow import flight
from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import CliPositionalArg, CliSubCommand, SettingsConfigDict

from updraft.client.credentials import CredentialsError
from updraft.errors import UpdraftError
from updraft.service.command_line import Application, parser_of, run_command_line
from updraft.service.settings import setting
from updraft.spark.local_service import LocalServiceError
from updraft_cli.cluster import ClusterError
from updraft_cli.commands.call import Call, CallError
from updraft_cli.commands.doctor import Doctor
from updraft_cli.commands.drain import Drain
from updraft_cli.commands.functions import Functions
from updraft_cli.commands.logs import Logs
from updraft_cli.commands.new import New, TemplateError
from updraft_cli.commands.profile import ProfileCommand, ProfileError
from updraft_cli.commands.serve import Serve
from updraft_cli.commands.stack import Stack
from updraft_cli.commands.status import Status
from updraft_cli.commands.tokens import Tokens
from updraft_cli.doctor.confs import SparkConfError
from updraft_cli.served_module import ServeError
from updraft_cli.service import first_line
from updraft_cli.table_files import TableFileError


class Completion(BaseModel):
    """Print a script that completes subcommands, options and file names in a shell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    examples: ClassVar[str] = """examples:
  updraft completion bash > ~/.local/share/bash-completion/completions/updraft
  updraft completion zsh > ~/.zfunc/_updraft
"""

    shell: CliPositionalArg[Literal["bash", "zsh", "tcsh"]] = setting("The shell.")

    def cli_cmd(self) -> None:
        """Print the script."""
        import shtab

        sys.stdout.write(shtab.complete(parser_of(Updraft), self.shell) + "\n")


class Updraft(Application):
    """Write functions for pools, operate pools and writers, and find out why a Spark job cannot reach them.

    Without --endpoint, commands that ask services find pods in the Kubernetes cluster of your kubeconfig, by the labels
    of the chart.
    """

    model_config = SettingsConfigDict(cli_prog_name="updraft")
    distribution: ClassVar[str] = "updraft-cli"

    new: CliSubCommand[New] = Field(description="Begin a module of functions, with its tests.")
    serve: CliSubCommand[Serve] = Field(description="Serve a module on this machine while you write it.")
    call: CliSubCommand[Call] = Field(description="Call a function with values, or with the rows of a file.")
    logs: CliSubCommand[Logs] = Field(description="Show what functions printed in your calls.")
    profile: CliSubCommand[ProfileCommand] = Field(description="Draw where running functions spend their time.")
    status: CliSubCommand[Status] = Field(description="Show pools and writers, their health, load and versions.")
    functions: CliSubCommand[Functions] = Field(description="List the functions of pools.")
    drain: CliSubCommand[Drain] = Field(description="Let a pod finish its work, then stop it.")
    stack: CliSubCommand[Stack] = Field(description="Print where the Python of a pool's workers is.")
    tokens: CliSubCommand[Tokens] = Field(description="Make the Secrets with the tokens of pools and writers.")
    doctor: CliSubCommand[Doctor] = Field(description="Find out why a Spark job cannot reach a pool or a writer.")
    completion: CliSubCommand[Completion] = Field(description="Print the completion of this command for a shell.")


def main() -> None:
    """Run the command `updraft`; exits with 1 and a line on stderr if it fails."""
    try:
        run_command_line(Updraft)
    except (
        CallError,
        ClusterError,
        CredentialsError,
        LocalServiceError,
        ProfileError,
        ServeError,
        SparkConfError,
        TableFileError,
        TemplateError,
    ) as error:
        _end(str(error))
    except UpdraftError as error:
        sys.stderr.writelines(f"{line}\n" for line in error.traceback.splitlines())
        _end(str(error))
    except grpc.RpcError as error:
        _end(f"the service does not answer: {error.details()}")
    except flight.FlightUnauthorizedError as error:
        _end(f"the service refuses: {first_line(error)}")
    except pa.ArrowKeyError as error:
        _end(first_line(error))
    except pa.ArrowException as error:
        _end(f"the service does not answer: {first_line(error)}")


def _end(reason: str) -> None:
    sys.stderr.write(f"updraft: {reason}\n")
    sys.exit(1)
