# SPDX-License-Identifier: Apache-2.0
"""`updraft logs`: show what functions of a pool printed in this user's calls."""

import contextlib
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from pydantic_settings import CliPositionalArg

from updraft.client import PoolClient
from updraft.service.command_line import Verbatim
from updraft.service.settings import setting
from updraft_cli.options import ViewOptions
from updraft_cli.output import print_line

_WAIT_SECONDS = 20.0
_BETWEEN_SECONDS = 0.2


class Logs(ViewOptions):
    """Show the last lines that functions printed or logged in your own calls, and with --follow the next ones.

    Your own calls are all calls with your identity, and calls to this endpoint with `updraft call` or `updraft.client`
    by this user on this machine. A pool keeps the last 2,000 lines of each client, until it restarts; its own log has
    all lines. A pod knows only the calls that it served.
    """

    examples: ClassVar[str] = """examples:
  updraft logs --endpoint grpc://127.0.0.1:8815
  updraft logs greeting --follow --lines 20
  updraft logs --all --where application=app-20261123-0007 --where stage=3.0 --token-file admin-token
"""

    name: CliPositionalArg[str] = setting("Name of a function; defaults to all functions.", default="")
    lines: int = setting("Number of earlier lines to show.", default=100, ge=0, le=2000)
    follow: bool = setting("Keep printing new lines until Ctrl-C.", default=False)
    where: list[Verbatim] = setting(
        "FIELD=VALUE that a line must have: worker, application, query, stage, partition or attempt; repeat the option "
        "for others.",
        default=[],
    )
    output: Literal["text", "json"] = setting(
        "Output format: text for people, JSON Lines for programs.", default="text"
    )

    @model_validator(mode="after")
    def _has_fields(self) -> "Logs":
        for text in self.where:
            if "=" not in text:
                raise ValueError(f"--where {text}: expected FIELD=VALUE")
        return self

    def cli_cmd(self) -> None:
        """Print the lines."""
        with contextlib.suppress(KeyboardInterrupt, BrokenPipeError), self.client() as client:
            # Fetch at least one line: its time says where later lines begin.
            shown = self._lines(client, max(self.lines, 1), 0, 0.0)
            last = shown[-1]["time_microseconds"] if shown else 0
            self._show(shown if self.lines else [])
            while self.follow:
                shown = self._lines(client, 2000, last, _WAIT_SECONDS)
                last = shown[-1]["time_microseconds"] if shown else last
                self._show(shown)
                # Pause, so that one request fetches many lines of a function that prints without a pause.
                time.sleep(_BETWEEN_SECONDS)

    def _lines(self, client: PoolClient, most: int, after: int, wait_seconds: float) -> list[dict[str, Any]]:
        fields = dict(text.split("=", 1) for text in self.where)
        if self.name:
            fields["function"] = self.name
        return client.output(
            of_all=self.all, fields=fields, lines=most, after_microseconds=after, wait_seconds=wait_seconds
        )

    def _show(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            print_line(json.dumps(line) if self.output == "json" else _text(line))
        sys.stdout.flush()


def _text(line: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(line["time_microseconds"] / 1e6, UTC)
    where = [str(line.get("function", ""))]
    if "stage" in line:
        where.append(f"stage {line['stage']}, partition {line.get('partition', '?')}")
    return (
        f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z [{', '.join(filter(None, where))}] {line['line']}"
    )
