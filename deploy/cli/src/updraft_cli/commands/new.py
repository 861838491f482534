# SPDX-License-Identifier: Apache-2.0
"""`updraft new`: create a module of functions to begin with."""

import keyword
import sys
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic_settings import CliPositionalArg

from updraft.service.settings import setting
from updraft_cli.output import print_line

_FILES = {
    "${module}.py": '''"""Functions of $module."""

import pyarrow.compute as pc
from updraft import function
from updraft.functions import Arrow


@function(version="1", owner="$module")
def greeting(name: str, word: str = "Hello") -> str:
    """A greeting: called with the values of one row."""
    return f"{word}, {name}!"


@function(version="1", owner="$module")
def shout(text: Arrow[str]) -> Arrow[str]:
    """The text in capitals: called with a batch, as an Arrow array."""
    return pc.utf8_upper(text)
''',
    "test_${module}.py": '''"""Runs the functions as a pool does, without one: `python -m pytest`."""

from updraft import testing

import $module


def test_greeting() -> None:
    greetings = testing.call($module.greeting, ["Ada", "Bob"]).to_pylist()
    assert greetings == ["Hello, Ada!", "Hello, Bob!"]


def test_shout() -> None:
    assert testing.call($module.shout, ["quiet"]).to_pylist() == ["QUIET"]
''',
    "pyproject.toml": """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$distribution"
version = "0.0.1"
description = "Functions for pools of Updraft"
requires-python = ">=3.11"
dependencies = ["updraft-core>=$version"]

[tool.hatch.build.targets.wheel]
only-include = ["${module}.py"]
""",
}


class TemplateError(Exception):
    """Raised when a module cannot be created; the message says why, and what to do."""


def write_module(name: str, parent: Path) -> list[Path]:
    """Write the files into a new directory `name` of `parent` and return their paths. Raises TemplateError."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise TemplateError(f"{name!r} is not a name for a Python module: use letters, digits and underscores")
    if name in sys.stdlib_module_names:
        raise TemplateError(f"Python has a module {name} of its own, which would be found first: choose another name")
    directory = parent / name
    try:
        directory.mkdir()
        values = {"module": name, "distribution": name.replace("_", "-"), "version": version("updraft-core")}
        written = []
        for path, text in _FILES.items():
            file = directory / Template(path).substitute(values)
            file.write_text(Template(text).substitute(values))
            written.append(file)
    except FileExistsError:
        raise TemplateError(f"{directory} exists already: choose another name") from None
    except OSError as error:
        raise TemplateError(f"cannot write {error.filename}: {error.strerror}") from None
    return written


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
