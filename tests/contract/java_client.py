# SPDX-License-Identifier: Apache-2.0
"""Calls of a registered function by Arrow's own Java client, without any part of Updraft."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tests.support.java import java_command

_SOURCE = Path(__file__).parent / "java/CallAny.java"
_END_SECONDS = 30


class FlightError(Exception):
    """Raised when the client receives an error: `NAME_OF_CODE: description`."""


class JavaClient:
    """Java program that makes one call after the other; columns reach it in files."""

    def __init__(self, program: subprocess.Popen[str], directory: Path) -> None:
        self._program = program
        self._arguments = directory / "arguments.arrows"
        self._results = directory / "results.arrows"

    def call(self, name: str, columns: Sequence[pa.Array]) -> pa.Table:
        """Return the results for the columns; raise FlightError."""
        batch = pa.record_batch(list(columns), [str(number) for number in range(len(columns))])
        with pa.ipc.new_stream(self._arguments, batch.schema) as writer:
            writer.write_batch(batch)
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f"{name}\t{self._arguments}\t{self._results}\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline().rstrip("\n")
        if answer != "OK":
            raise FlightError(answer)
        return pa.ipc.open_stream(self._results.read_bytes()).read_all()


@contextmanager
def java_client(class_path: str, address: str, directory: Path) -> Iterator[JavaClient]:
    """Run a client connected to a pool, with its files in the directory."""
    command = java_command(class_path, _SOURCE, f"grpc://{address}")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield JavaClient(program, directory)
        except BaseException:
            program.kill()
            raise
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(_END_SECONDS) == 0
