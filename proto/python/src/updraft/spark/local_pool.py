# SPDX-License-Identifier: Apache-2.0
"""Pool that runs as a child of this process."""

import contextlib
import os
from pathlib import Path

from updraft.spark.interrupts import INTERRUPTS
from updraft.spark.local_service import LocalService, SettingValue


class LocalPool(LocalService):
    """Running pool, started by `local_pool`."""

    _hooked = False

    def _places(self) -> list[str]:
        # The default runtime directory may have too long a path for a socket. Hide our directory, log included, from
        # functions.
        return [f"--runtime-directory={self._directory / 'runtime'}", f"--hidden-paths={self._directory}"]

    def _environment(self) -> dict[str, str]:
        # Stock PySpark's workers import modules from these places too. The pool's processes do so only if told.
        with contextlib.suppress(FileNotFoundError):
            places = [os.environ.get("PYTHONPATH", ""), str(Path.cwd())]
            return {"PYTHONPATH": os.pathsep.join(filter(None, places))}
        return {}

    def cancel_jobs_on_interrupt(self) -> None:
        """Make an interrupt of a cell or program cancel its Spark jobs, so that workers are free, until `stop`."""
        if not self._hooked:
            self._hooked = True
            INTERRUPTS.acquire()

    def spark_conf(self) -> dict[str, str]:
        """Return the confs with which the Python UDFs of a Spark session on this machine run on the pool.

        Raises:
            ValueError: Updraft has no jar for the PySpark that is installed here.
            ModuleNotFoundError: The distribution `updraft-spark` is not installed.
        """
        if self._hooked:
            # PySpark may have been imported only after the pool started.
            INTERRUPTS.install()
        return {**super().spark_conf(), "spark.updraft.udf.endpoint": self.endpoint}

    def stop(self) -> None:
        """Stop the pool, remove its files, and restore how this process handles interrupts.

        Running exchanges get 10 seconds to finish. Idempotent.
        """
        super().stop()
        if self._hooked:
            self._hooked = False
            INTERRUPTS.release()


def local_pool(workers: int | None = None, **settings: SettingValue) -> LocalPool:
    """Start a pool for this user's sessions on this machine, with this Python and its packages.

    Args:
        workers: Number of worker processes, each of which runs one exchange at a time; None for one per CPU.
        settings: Other options of `updraft-server serve`, with underscores: `worker_memory_bytes=2**31`.

    Raises:
        LocalServiceError: The pool did not start; the message says why.
    """
    arguments = ["--session-functions=unsigned"]
    if workers is not None:
        arguments.append(f"--workers={workers}")
    pool = LocalPool("pool", "updraft-server", arguments, settings)
    pool.cancel_jobs_on_interrupt()
    return pool
