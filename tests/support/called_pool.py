# SPDX-License-Identifier: Apache-2.0
"""Pool for the tests of the Python client and of `updraft call`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tests.support.paths import EXAMPLES
from tests.support.pool import NOTES, LocalPool

_MODULE = """
import os, time
from pathlib import Path
from updraft import function

@function(version="1")
def parity(x: int, word: str = "is", end: str = "!") -> str:
    return f"{word}{x % 2}{end}"

@function(name="parity", version="2")
def parity_2(x: int) -> str:
    return str(x % 2)

@function(version="1")
def hello(name: str, word: str = "Hello") -> str:
    return f"{word}, {name}!"

@function(name="hello", version="2")
def hello_2(name: str) -> str:
    return name.upper()

@function
def total(prices: list[float]) -> float:
    return sum(prices)

@function
def constant(first: str = "a", second: str = "b") -> str:
    return first + second

@function
def inverse(x: int) -> float:
    return 1 / x

@function
def sleepy(note: str) -> str:
    Path(note).touch()
    # Tests cancel the call; it must not end before.
    time.sleep(600)
    return note

@function
def talks(text: str) -> str:
    print("heard", text, flush=True)
    return text

@function
def works(note: str) -> str:
    Path(note).touch()
    while True:
        sum(range(2000))

@function
def dies_once(x: int, note: str) -> int:
    if x == 7 and not os.path.exists(note):
        Path(note).touch()
        os.abort()
    return x

@function
def dies(x: int) -> int:
    os.abort()

@function(deterministic=False)
def dies_and_counts(note: str) -> str:
    with open(note, "a") as calls:
        calls.write("called\\n")
    os.abort()
"""


@contextmanager
def called_pool(directory: Path) -> Iterator[LocalPool]:
    """Run a pool with these functions and the example's; `directory` is empty."""
    (directory / "called.py").write_text(_MODULE)
    with (
        mock.patch.dict(os.environ, PYTHONPATH=f"{EXAMPLES}:{directory}"),
        LocalPool(workers=2, notes=NOTES, arguments=["--functions", "shop,called"]) as running,
    ):
        yield running
        print(running.log())


def new_note(name: str) -> Path:
    """Return the path of a file that does not exist yet, which functions can make."""
    NOTES.mkdir(parents=True, exist_ok=True)
    path = NOTES / f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    path.unlink(missing_ok=True)
    return path


def busy_workers(pool: LocalPool) -> int:
    """Return how many workers of a pool are busy."""
    return int(json.loads(pool.page("/status.json")[0])["workers"]["busy"])
