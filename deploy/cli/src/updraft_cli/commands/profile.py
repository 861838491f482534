# SPDX-License-Identifier: Apache-2.0
"""`updraft profile`: draw where running functions of a pool spend their time."""

from pathlib import Path
from typing import ClassVar

from pydantic import field_validator
from pydantic_settings import CliPositionalArg

from updraft.service.settings import setting
from updraft_cli.options import ViewOptions
from updraft_cli.output import print_line


class ProfileError(Exception):
    """Raised when there is nothing to draw, or the file cannot be written."""


class ProfileCommand(ViewOptions):
    """Sample the Python stacks of running calls, and draw them as a flame graph. The calls go on meanwhile.

    Begin a call first, for example with `updraft call` in another terminal. The pool samples its workers 50 times a
    second. The profile shows wall time: where functions compute and where they wait. It covers your own calls, as
    explained by `updraft logs --help`.
    """

    examples: ClassVar[str] = """examples:
  updraft profile greeting --endpoint grpc://127.0.0.1:8815
  updraft profile --all --seconds 30 --output pool.svg
  updraft profile greeting --output greeting.txt     # for speedscope
"""

    name: CliPositionalArg[str] = setting("Name of the function; defaults to all functions.", default="")
    seconds: float = setting("How long to sample.", default=10.0, unit="seconds", gt=0, le=60)
    output: Path = setting(
        "File to write: an SVG drawing, or folded stacks if its name ends with .txt.", default=Path("profile.svg")
    )

    @field_validator("output")
    @classmethod
    def _has_a_format(cls, path: Path) -> Path:
        if path.suffix not in (".svg", ".txt"):
            raise ValueError(f"{path}: the name of a profile must end in .svg or .txt")
        return path

    def cli_cmd(self) -> None:
        """Sample and write the file; raise ProfileError if no call ran."""
        with self.client() as client:
            profile = client.profile(self.name, seconds=self.seconds, of_all=self.all)
        if not profile.stacks:
            what = ("call" if self.all else "call of your own") + (f" of {self.name}" if self.name else "")
            raise ProfileError(
                f"no {what} ran in these {self.seconds:g} seconds: begin one, then profile it"
                + ("" if self.all else "; --all samples the calls of all clients")
            )
        try:
            self.output.write_text(profile.folded if self.output.suffix == ".txt" else profile.svg)
        except OSError as error:
            raise ProfileError(f"{self.output}: {error.strerror}") from None
        print_line(f"{self.output}: {profile.samples} samples")
