# SPDX-License-Identifier: Apache-2.0
"""Files of a new module of functions, which can be tested, served and built as they are."""

import keyword
import sys
from importlib.metadata import version
from pathlib import Path
from string import Template

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
