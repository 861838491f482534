# SPDX-License-Identifier: Apache-2.0
"""Files that functions leave in their scratch directories are removed with the pool, however it ends."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import flight
from served_pool import HANG_SECONDS, SCHEMA, Server, batch, finish

FUNCTIONS = """
import os
import pyarrow as pa
from updraft import function

@function
def litter(batch: pa.RecordBatch) -> pa.RecordBatch:
    directory = os.open(os.environ["TMPDIR"], os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("nested", dir_fd=directory)
        directory, above = os.open("nested", os.O_RDONLY, dir_fd=directory), directory
        os.close(above)
    os.close(directory)
    os.mkdir(os.environ["TMPDIR"] + "/closed", 0)
    return batch
"""


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Unlike pytest's, short enough for the path of a Unix socket.
    with tempfile.TemporaryDirectory(prefix="updraft-scratch-") as made:
        (Path(made) / "littering_functions.py").write_text(FUNCTIONS)
        monkeypatch.setenv("PYTHONPATH", made)
        yield Path(made)


def littered(directory: Path) -> Server:
    """Start a pool whose worker has left such files."""
    options = ("--workers=1", "--functions=littering_functions", f"--runtime-directory={directory}/pool")
    server = Server(directory, *options)
    with server.client() as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("litter"))
        writer.begin(SCHEMA)
        writer.write_batch(batch(1))
        assert finish(writer, reader) == "OK"
    return server


def scratch(directory: Path) -> list[Path]:
    """Return the scratch directories, without an empty trash."""
    trash = directory / "pool" / "scratch" / ".trash"
    found = list((directory / "pool" / "scratch").iterdir())
    return [path for path in found if path != trash or list(trash.iterdir())]


def test_a_pool_that_is_told_to_end_leaves_nothing_in_its_directory(directory: Path) -> None:
    server = littered(directory)
    assert scratch(directory)
    assert server.stop() == 0
    assert not scratch(directory)


def test_what_a_killed_pool_leaves_goes_with_the_next_start(directory: Path) -> None:
    server = littered(directory)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(HANG_SECONDS)
    (directory / "ready.json").unlink()
    left = set(scratch(directory))
    assert left
    again = Server(directory, "--workers=1", f"--runtime-directory={directory}/pool")
    again.wait_for(lambda: not left & set(scratch(directory)))
    assert again.stop() == 0


def test_a_worker_that_ends_takes_what_it_left_with_it(directory: Path) -> None:
    server = littered(directory)
    before = server.ready()["workers"]
    [(worker, pid)] = before.items()
    os.kill(pid, signal.SIGKILL)
    # Only the successor's directory is left, so there is nothing to remove.
    server.wait_for(lambda: len(left := scratch(directory)) == 1 and left[0].name != worker)
    assert server.stop() == 0
