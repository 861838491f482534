# SPDX-License-Identifier: Apache-2.0
"""Types of `updraft-server` settings other than numbers and texts."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from updraft.service.settings import split_at_commas
from updraft_server.sandbox_layers import NEEDS


def _checked_modules(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not the name of a Python module: expected the form package.module")
    return names


def _absolute_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        if not Path(path).is_absolute():
            raise ValueError(f"{path!r} is not an absolute path")
    return paths


PathList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_commas), AfterValidator(_absolute_paths)]


def _checked_layers(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in NEEDS:
            raise ValueError(f"{name!r} is not a layer of the workers' sandbox: the layers are {', '.join(NEEDS)}")
    return names


LayerNames = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_commas), AfterValidator(_checked_layers)]
FunctionNames = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_commas)]
ModuleNames = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_commas), AfterValidator(_checked_modules)]


SessionFunctions = Literal["off", "unsigned", "signed", "prefer-signed"]
