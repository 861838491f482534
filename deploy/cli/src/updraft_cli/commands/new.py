# SPDX-License-Identifier: Apache-2.0
"""`updraft new`: create a module of functions to begin with."""

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic_settings import CliPositionalArg

from updraft.service.settings import setting
from updraft_cli.module_template import write_module
from updraft_cli.output import print_line


class New(BaseModel):
    """Write a module with two functions, their tests and a pyproject.toml into a new directory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    examples: ClassVar[str] = """examples:
  updraft new my_functions
"""

    name: CliPositionalArg[str] = setting("Name of the module, and of the directory.")

    def cli_cmd(self) -> None:
        """Write the module, and print the next commands."""
        for file in write_module(self.name, Path.cwd()):
            print_line(str(file.relative_to(Path.cwd())))
        print_line()
        for command, effect in (
            (f"cd {self.name}", ""),
            ("python -m pytest", "tests the functions without a pool (pip install pytest)"),
            (f"updraft serve {self.name}", "runs them on this machine, and reloads them when you save"),
            ("pip wheel --no-deps .", "builds a wheel for the pools of a cluster"),
        ):
            print_line(f"{command:<30} {effect}".rstrip())
