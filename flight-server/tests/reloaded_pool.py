# SPDX-License-Identifier: Apache-2.0
"""Served pool whose functions change and are reloaded, and exchanges with them."""

import signal
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight
from served_pool import HANG_SECONDS, Server

NUMBERS = pa.schema([pa.field("number", pa.int64(), nullable=False)])
MODULE = "reloaded_functions"
_NAMES = ("updraft-zygote", "updraft-worker", "updraft-model")
_WHOLE = ["updraft-model", "updraft-worker", "updraft-worker", "updraft-zygote"]
# The length of the text is the version: Python may take files of equal length and second for the same file.
TEXT = """
import os
import signal
import time
from pathlib import Path

import pyarrow as pa

from updraft import function
from updraft.functions import Arrow, Batching

VERSION = "{version}"


@function
def version(number: int) -> str:
    return VERSION


@function
def crashing(number: int) -> str:
    \"\"\"As `version`; the first version ends its worker.\"\"\"
    if VERSION == "a":
        os.kill(os.getpid(), signal.SIGKILL)
    return VERSION


@function
def waiting(number: int) -> str:
    \"\"\"As `version`, and for the number 1 once there is a file.\"\"\"
    while number == 1 and not Path({go!r}).exists():
        time.sleep(0.01)
    return VERSION


@function(batching=Batching(wait_seconds=0.0))
def model(number: Arrow[int]) -> Arrow[str]:
    print(f"called with {{VERSION}}")
    return pa.array([waiting(each) for each in number.to_pylist()])
"""


# Loads once a file exists, and reports that it has come so far.
HELD = """
import os
import time
from pathlib import Path

Path({loading!r}).write_text(str(os.getpid()))
while not Path({load!r}).exists():
    time.sleep(0.01)
"""


class Pool:
    """Pool of functions whose code changes."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._module = directory / f"{MODULE}.py"
        self._loading = directory / "loading"
        self.write("a")
        self._log = directory / "log"
        with self._log.open("w") as log:
            self.server = Server(directory, f"--functions={MODULE}", "--workers=2", *options, stderr=log)

    def write(self, version: str, first: str = "") -> None:
        """Write the module, with this code at its start."""
        self._module.write_text(first + TEXT.format(version=version, go=str(self._directory / "go")))

    def write_what_loads_when_it_may(self, version: str) -> None:
        self.write(version, HELD.format(loading=str(self._loading), load=str(self._directory / "load")))

    def go_on(self) -> None:
        (self._directory / "go").touch()

    def let_load(self) -> None:
        (self._directory / "load").touch()

    def load_again(self) -> None:
        self.server.process.send_signal(signal.SIGUSR2)

    def loading(self) -> psutil.Process:
        """Wait until a new process begins to load the module that holds, and return the process."""
        self.server.wait_for(lambda: self._loading.exists() and bool(self._loading.read_text()))
        process = psutil.Process(int(self._loading.read_text()))
        self._loading.unlink()
        return process

    def log(self) -> str:
        return self._log.read_text()

    def wait_for_log(self, text: str) -> None:
        self.server.wait_for(lambda: text in self.log())

    def processes(self) -> dict[int, str]:
        """Return the process names by id, without the helpers that measure and empty scratch directories."""
        found = {}
        for process in psutil.Process(self.server.process.pid).children(recursive=True):
            try:
                found[process.pid] = process.name()
            except psutil.NoSuchProcess:
                continue
        return {pid: name for pid, name in found.items() if name in _NAMES}

    def zygotes(self) -> list[int]:
        return [pid for pid, name in self.processes().items() if name == "updraft-zygote"]

    def wait_until_it_is_whole(self) -> None:
        """Wait until only processes of the current code are left, and none is missing."""
        self.server.wait_for(lambda: sorted(self.processes().values()) == _WHOLE)


class Exchange:
    """Exchange of a plain client."""

    def __init__(self, pool: Pool, name: str) -> None:
        self._client = pool.server.client()
        options = flight.FlightCallOptions(timeout=HANG_SECONDS)
        self._writer, self._reader = self._client.do_exchange(flight.FlightDescriptor.for_path(name), options=options)
        self._writer.begin(NUMBERS)

    def call(self, number: int) -> str:
        self._writer.write_batch(pa.record_batch([pa.array([number])], schema=NUMBERS))
        return str(self._reader.read_chunk().data.column(0)[0])

    def close(self) -> None:
        self._writer.done_writing()
        with pytest.raises(StopIteration):
            self._reader.read_chunk()
        self._client.close()


def answer(pool: Pool, name: str = "version") -> str:
    """Return the answer of a new exchange."""
    exchange = Exchange(pool, name)
    version = exchange.call(0)
    exchange.close()
    return version


def until_it_answers(pool: Pool, version: str) -> None:
    """Wait until new exchanges run this code."""
    pool.server.wait_for(lambda: answer(pool) == version)
