# SPDX-License-Identifier: Apache-2.0
"""Worker exchanges: each runs the main() of one of PySpark's worker modules over the byte stream of Spark's runner.

Spark starts these modules for everything that Updraft's operators do not cover: RDDs, streaming state, data sources.
The stream contains paths on Spark's host. `HostFiles` replaces them by the paths of the copies in the pool.
"""

import contextlib
import functools
import importlib
import io
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pyspark.worker
import pyspark.worker_util
from pyspark.broadcast import Broadcast, _broadcastRegistry
from pyspark.files import SparkFiles

from updraft.errors import FunctionRefusedError
from updraft_server.worker.pyspark.connections import BUFFER_BYTES, ByteStream
from updraft_server.worker.pyspark.init_message import Surroundings

_PACKAGE = "pyspark."


class HostFiles:
    """Files of Spark's host that PySpark's worker names, and their copies in the pool."""

    def __init__(self) -> None:
        """Patch PySpark's set-up of files and broadcast variables. Outside `replaced`, both work as before."""
        self._around: Surroundings | None = None
        for module in (pyspark.worker_util, pyspark.worker):
            # PySpark before 4.0 has these functions in other modules, but needs no patch: it has no worker exchanges.
            if hasattr(module, "setup_spark_files"):
                self._wrap(module, "setup_spark_files", self._use_directory)
                self._wrap(module, "setup_broadcasts", self._use_broadcasts)

    @contextlib.contextmanager
    def replaced(self, around: Surroundings) -> Iterator[None]:
        """Use the pool's copies during the block."""
        self._around = around
        before = SparkFiles._root_directory, SparkFiles._is_running_on_worker
        try:
            yield
        finally:
            self._around = None
            SparkFiles._root_directory, SparkFiles._is_running_on_worker = before

    def _wrap(self, module: ModuleType, name: str, then: Callable[[Surroundings], None]) -> None:
        stock = getattr(module, name)

        @functools.wraps(stock)
        def set_up(*arguments: Any) -> None:
            stock(*arguments)
            if self._around is not None:
                then(self._around)

        setattr(module, name, set_up)

    def _use_directory(self, around: Surroundings) -> None:
        on_host, SparkFiles._root_directory = str(SparkFiles._root_directory), around.files_directory
        inside = on_host.rstrip("/") + "/"
        sys.path[:] = [
            f"{around.files_directory}{path[len(on_host) :]}" if path == on_host or path.startswith(inside) else path
            for path in sys.path
        ]
        importlib.invalidate_caches()

    def _use_broadcasts(self, around: Surroundings) -> None:
        for number in around.broadcasts.removed:
            _broadcastRegistry.pop(number, None)
        for number, path in around.broadcasts.added.items():
            _broadcastRegistry[number] = Broadcast(path=path)


def load_module(name: str) -> ModuleType:
    """Import a worker module of PySpark; raises FunctionRefusedError if this PySpark has no such module."""
    if name.startswith(_PACKAGE):
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            is_module = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
            if not is_module:
                raise FunctionRefusedError(
                    f"this pool cannot run {name}: {error}: install the package where the pool runs"
                ) from error
        else:
            if callable(getattr(module, "main", None)):
                return module
    raise FunctionRefusedError(f"this pool, with pyspark {pyspark.__version__}, has no worker module {name!r}")


class Outcome(NamedTuple):
    """Outcome of a worker module."""

    error: BaseException | None
    """Exception that the module raised and has already reported to Spark. None if the module returned."""
    unread_bytes: int
    """Number of bytes that the module has left unread in its buffer."""


def run_main(module: ModuleType, stream: ByteStream) -> Outcome:
    """Run the main() of a module over the stream of Spark's runner."""
    error: BaseException | None = None
    # Like Spark's own daemon, give the worker two buffered files over one stream. PySpark flushes its output where
    # Spark waits for it.
    infile, outfile = io.BufferedReader(stream, BUFFER_BYTES), io.BufferedWriter(stream, BUFFER_BYTES)
    try:
        module.main(infile, outfile)
    except BaseException as raised:  # usually a SystemExit, which must not end this process
        error = raised
    outfile.flush()
    stream.stop_reading()
    unread_bytes = len(infile.read())
    # Detach the files, so that they neither close the stream nor flush again when Python frees them.
    infile.detach()
    outfile.detach()
    return Outcome(error, unread_bytes)
