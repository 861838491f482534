# SPDX-License-Identifier: Apache-2.0
"""Image that every worker of a pool starts with. The zygote loads it once, and workers inherit it by fork."""

import contextlib
import faulthandler
import importlib
import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from updraft.container_memory import memory_limits
from updraft_server.ipc.function_list import encode_functions
from updraft_server.ipc.load import Load, LoadingNote
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.zygote_packets import Hello
from updraft_server.linux.resource_limits import limit_resources
from updraft_server.sandbox.owner_files import OwnerFiles
from updraft_server.sandbox.scratch import use_scratch
from updraft_server.sandbox.worker_sandbox import restrict
from updraft_server.sandbox_layers import SandboxLayer
from updraft_server.worker.channel import Channel
from updraft_server.worker.model.channel import MODEL_CHANNEL, ModelChannel
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.model.process import ModelProcess, take_share
from updraft_server.worker.model.watchdog import Watchdog
from updraft_server.worker.process import Worker
from updraft_server.worker.process_state import reseed
from updraft_server.worker.registered.description import descriptions
from updraft_server.worker.registered.modules import registered_functions

if TYPE_CHECKING:
    from updraft_server.worker.pyspark.runner import SessionRunner

# Modules that pyarrow and PySpark import on first use. One import in the zygote is cheaper than one in every worker.
_PRELOADED = (
    "pyarrow.compute",
    "pyarrow.vendored.version",
    "pandas",
    "numpy",
    "numpy.rec",
    "pyarrow.pandas_compat",
    "pyspark.sql.pandas.conversion",
)


class Image:
    """Functions and settings, with PySpark if the pool runs session functions."""

    def __init__(
        self,
        settings: WorkerSettings,
        files: OwnerFiles,
        function_modules: Iterable[str],
        files_directory: str,
        *,
        broken_loads: Mapping[Load, str],
        note: LoadingNote,
    ) -> None:
        """Load the image; raises import errors. Import errors of function modules are recorded as faults instead.

        Args:
            settings: Settings of every worker.
            files: Files that session functions can use.
            function_modules: Modules with the registered functions.
            files_directory: Directory of the artifacts.
            broken_loads: Loads to skip, with the reasons.
            note: Records which author's code is running.
        """
        self._settings = settings
        self._files = files
        self._sessions = _session_runner(settings, files_directory) if settings.allow_session_functions else None
        self._functions = registered_functions(
            function_modules, settings.load_timeout_seconds, broken=broken_loads, running=note.of
        )
        self.batched_functions: Sequence[BatchedFunction] = [
            batched for function in self._functions if (batched := function.batched) is not None
        ]
        """Functions that run in model processes."""

    @property
    def faults(self) -> Mapping[str, str]:
        """Return why modules and functions cannot be called, keyed by name."""
        modules = {fault.module: fault.fault for fault in self._functions.module_faults}
        return modules | {f"{each.name}@{each.version}": each.fault for each in self._functions if each.fault}

    def hello(self, sandbox: Sequence[SandboxLayer] = ()) -> Hello:
        """Return the packet that describes this process and its workers to a front."""
        try:
            pyspark_version = metadata.version("pyspark")
        except metadata.PackageNotFoundError:
            pyspark_version = ""
        described = encode_functions(descriptions(self._functions))
        python_version = f"{sys.version_info.major}.{sys.version_info.minor}"
        memory_limit_bytes = min(memory_limits().values())
        return Hello(os.getpid(), python_version, pyspark_version, described, sandbox, memory_limit_bytes)

    def run_worker(self, scratch: Path, sock: socket.socket) -> NoReturn:
        """Run as a worker in this freshly forked process, with its own scratch directory; never returns.

        If the pool has models, descriptor MODEL_CHANNEL is the worker's model channel.
        """
        self._begin(scratch)
        model_channel = ModelChannel(MODEL_CHANNEL if self.batched_functions else None)
        Worker(
            Channel(sock), self._settings, self._functions, self._sessions, self._files, scratch, model_channel
        ).run()

    def run_model(
        self, function: BatchedFunction, number: int, watchdog: Watchdog, scratch: Path, control: socket.socket
    ) -> NoReturn:
        """Run as the function's replica `number` in this freshly forked process; never returns."""
        self._begin(scratch)
        if function.name in self._settings.restricted_functions:
            restrict()
        take_share(function.batching, number)
        ModelProcess(control, function, self._settings.max_batch_rows, watchdog).run()

    def _begin(self, scratch: Path) -> None:
        reseed()
        use_scratch(scratch)
        limit_resources(file_bytes=self._settings.worker_file_bytes, descriptors=self._settings.worker_descriptors)
        # If C code crashes, faulthandler prints the stack, and the pool reports that the process has died.
        faulthandler.enable()


def _session_runner(settings: WorkerSettings, files_directory: str) -> "SessionRunner":
    # Import this only here, because a pool that runs only registered functions may lack PySpark.
    from updraft_server.worker.pyspark.runner import SessionRunner

    sessions = SessionRunner(files_directory, signed_functions_alone=settings.signed_functions_alone)
    for module in _PRELOADED:
        # pandas is optional. If a function needs pandas and it is missing, the function raises the import error.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    return sessions
