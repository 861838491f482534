# SPDX-License-Identifier: Apache-2.0
"""Pool that runs as a child of this process."""

import base64
import contextlib
import http.client
import json
import os
import signal
import sys
import time
import urllib.request
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from updraft.container_memory import memory_limits
from updraft.spark.cell_output import CellOutput
from updraft.spark.cell_progress import CellProgress
from updraft.spark.edited_modules import EditedModules
from updraft.spark.interrupts import INTERRUPTS, ipython
from updraft.spark.local_service import LocalService, LocalServiceError, SettingValue, in_python, showing_options
from updraft.spark.options import PoolOptions
from updraft.spark.pool_html import ended_html, pool_html
from updraft.token_file import first_token

if TYPE_CHECKING:
    from updraft.client.profile import Profile

_USER = "updraft"
# Ten times the default of a shared pool: a single user prints here, and wants to read everything.
_OUTPUT_LINES_PER_SECOND = 1000
_STATUS_TIMEOUT_SECONDS = 5.0
_RELOAD_TIMEOUT_SECONDS = 60.0
_LOOK_SECONDS = 0.05
# Ignore the proxy that the environment sets: it must not see the password, and cannot reach this machine's loopback.
_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LocalPool(LocalService):
    """Running pool, started by `local_pool`."""

    output_lines = 100
    """Maximum number of lines of functions' output that a notebook cell shows; 0 shows none. `log` has all lines."""

    shows_progress = True
    """Whether a notebook cell shows the progress of the functions that it runs."""

    _option_names = PoolOptions.__optional_keys__ | {"workers"}
    _hooked = False
    _has_told_of_end = False
    _progress: CellProgress | None = None
    _output: CellOutput | None = None
    _edited: EditedModules | None = None

    def _places(self) -> list[str]:
        # The default runtime directory may have too long a path for a socket. Hide our directory, log included, from
        # functions.
        return [f"--runtime-directory={self._directory / 'runtime'}", f"--hidden-paths={self._directory}"]

    def _environment(self) -> dict[str, str]:
        # Stock PySpark's workers import modules from these directories too. The pool needs PYTHONPATH for that.
        with contextlib.suppress(FileNotFoundError):
            places = [os.environ.get("PYTHONPATH", ""), str(Path.cwd())]
            return {"PYTHONPATH": os.pathsep.join(filter(None, places))}
        return {}

    def _start(self) -> None:
        super()._start()
        self._has_told_of_end = False
        if not self._shows_log:
            for fault in dict.fromkeys(self._ready["function_faults"]):
                _tell(f"the pool has started with a fault: {in_python(fault)}")

    def join_notebook(self) -> None:
        """Install the hooks of this process into PySpark and IPython, until `stop`.

        Interrupts cancel Spark jobs, the pool loads edited modules before a cell runs, and a cell shows the output and
        the progress of its functions.
        """
        if self._hooked:
            return
        self._hooked = True
        INTERRUPTS.acquire()
        with contextlib.suppress(FileNotFoundError):
            self._edited = EditedModules(Path.cwd())
        if (shell := ipython()) is not None:
            if any(not pool.has_ended for pool in _POOLS_OF_NOTEBOOK):
                _tell(
                    "the pool of an earlier local_pool() call still runs, until you call its stop() or the kernel "
                    "ends; to replace a pool, call its restart()"
                )
            _POOLS_OF_NOTEBOOK.append(self)
            self._output, self._progress = CellOutput(self.log_file), CellProgress(self.status)
            shell.events.register("pre_run_cell", self._before_cell)
            shell.events.register("post_run_cell", self._after_cell)
            self._output.begin(self.output_lines)

    @showing_options(PoolOptions)
    def restart(self, workers: int | None = None, **settings: Unpack[PoolOptions]) -> None:
        """Start the pool again at the same address, so that its workers import the code that is on the disk now.

        The JVM and the session stay. Running exchanges get 10 seconds to finish. After that, a deterministic function
        with one result for each row continues with its unanswered batches on the new pool. Other functions, such as
        those of `mapInPandas`, fail their task; a session with a `local` master then fails the query.

        Args:
            workers: New number of worker processes; None leaves it as it is.
            settings: Options to change, as for `local_pool`.

        Raises:
            LocalServiceError: The pool did not start; the message says why. Failed options are forgotten, so `restart`
                can be called again without them.
        """
        if self._was_stopped:
            raise LocalServiceError("the pool was stopped: start another one with local_pool()")
        before = self._settings
        self._settings = {**before, **_given(settings)}
        if workers is not None:
            self._settings["workers"] = workers
        try:
            self._end()
            if self._edited is not None:
                self._edited.look()
            self._start()
        except BaseException:
            # The next restart must not fail because of the same options.
            self._settings = before
            raise

    @property
    def _was_stopped(self) -> bool:
        return not self._directory.exists()

    def status(self) -> dict[str, Any]:
        """Return the state of the pool, as `/status.json` has it; raises OSError if the pool does not answer."""
        try:
            address = self.status_url.removesuffix(".json") + ".json"
        except LocalServiceError as error:
            raise OSError(str(error)) from None
        login = base64.b64encode(f"{_USER}:{self._status_token()}".encode()).decode()
        request = urllib.request.Request(address, headers={"Authorization": f"Basic {login}"})  # noqa: S310 - http
        try:
            with _WITHOUT_PROXY.open(request, timeout=_STATUS_TIMEOUT_SECONDS) as answer:
                return dict(json.loads(answer.read()))
        except (http.client.HTTPException, ValueError) as error:
            # The pool ended while it answered.
            raise OSError(f"{address} sent an incomplete answer: {error}") from error

    def _status_token(self) -> str:
        """Return the pool's own token for `status`, or the first in the user's file, which must not be in a link."""
        own_file = self._settings.get("metrics_token_file")
        if self.status_password or not own_file:
            return self.status_password
        return first_token(Path(str(own_file)).read_text())

    def profile(self, name: str | None = None, seconds: float = 10.0) -> "Profile":
        """Sample where running functions spend their time. A notebook shows the result as a flame graph.

        Start the query first, in a thread or another notebook: this call blocks while it samples. `svg` and `folded` of
        the result are for files.

        Args:
            name: Name of a registered function, or "session" for the UDFs of Spark sessions; None for all functions.
            seconds: How long to sample, at most 60 seconds.

        Raises:
            UpdraftError: The pool does not answer, or was started with `allow_remote_stacks=False`.
        """
        # Import this late: it imports gRPC, which sessions that profile nothing do not need.
        from updraft.client.pool_client import PoolClient

        with PoolClient(endpoint=self.endpoint) as client:
            return client.profile(name or "", seconds=seconds, of_all=True)

    @property
    def status_link(self) -> str:
        """URL of the status page, with the pool's own password, so that a browser does not ask for it."""
        password = self.status_password
        return self.status_url.replace("http://", f"http://{_USER}:{password}@", 1) if password else self.status_url

    def _repr_html_(self) -> str:
        try:
            return pool_html(self.status(), self.status_link)
        except OSError:
            if self._was_stopped:
                return "<b>the pool was stopped</b>: <code>local_pool()</code> starts another one"
            return ended_html(self.log()) if self.has_ended else f"<pre>{escape(repr(self))}</pre>"

    def _before_cell(self, _info: object = None) -> None:
        """Load edited modules of the working directory, and show the output of functions in the cell."""
        if self._output is not None and self.output_lines:
            self._output.begin(self.output_lines)
        if self._progress is not None and self.shows_progress:
            self._progress.begin()
        if self.has_ended and not self._has_told_of_end:
            self._has_told_of_end = True
            _tell("the pool has ended, and queries wait for it: pool.restart() starts it again; pool.log() may say why")
        changed = self._edited.look() if self._edited is not None and not self.has_ended else []
        if not changed:
            return
        names = ", ".join(changed)
        if self._load_again():
            _tell(f"the pool has loaded {names} again")
        else:
            _tell(f"{names} changed, and the pool still has the old code: see pool.log()")

    def _after_cell(self, _result: object = None) -> None:
        if self._progress is not None:
            self._progress.end()
        if self._output is not None:
            self._output.end()

    def _load_again(self) -> bool:
        """Make the pool load all code again; return whether that worked. Running exchanges finish with the old code."""
        assert self._process is not None
        self._ready = json.loads(self._ready_file.read_text())
        zygote, refused = self._ready["zygote"], self._ready["refused_reloads"]
        self._process.send_signal(signal.SIGUSR2)
        deadline_seconds = time.monotonic() + _RELOAD_TIMEOUT_SECONDS
        while time.monotonic() < deadline_seconds and not self.has_ended:
            with contextlib.suppress(FileNotFoundError):
                self._ready = json.loads(self._ready_file.read_text())
            if self._ready["zygote"] != zygote:
                return True
            if self._ready["refused_reloads"] != refused:
                return False
            time.sleep(_LOOK_SECONDS)
        return False

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
        try:
            super().stop()
        finally:
            if self._is_owned:
                self._leave_notebook()

    def _leave_notebook(self) -> None:
        if not self._hooked:
            return
        self._hooked = False
        INTERRUPTS.release()
        with contextlib.suppress(ValueError):
            _POOLS_OF_NOTEBOOK.remove(self)
        if (shell := ipython()) is not None:
            self._after_cell()
            for event, callback in (("pre_run_cell", self._before_cell), ("post_run_cell", self._after_cell)):
                with contextlib.suppress(ValueError):
                    shell.events.unregister(event, callback)


_POOLS_OF_NOTEBOOK: list[LocalPool] = []


def _tell(notice: str) -> None:
    sys.stderr.write(f"updraft: {notice}\n")
    # A kernel sends standard output and standard error separately. Flush, so that the notice appears before the cell's
    # own output.
    sys.stderr.flush()


@showing_options(PoolOptions)
def local_pool(workers: int | None = None, **settings: Unpack[PoolOptions]) -> LocalPool:
    """Start a pool for this user's sessions on this machine, with this Python and its packages.

    A worker may take a quarter of the memory of the machine or container, so that a leak leaves the machine usable.
    Raise `worker_memory_bytes` for functions that need more.

    Args:
        workers: Number of worker processes, each of which runs one exchange at a time; None for one per CPU.
        settings: Other options of `updraft-server serve`, with underscores: `worker_memory_bytes=2**31`.

    Raises:
        LocalServiceError: The pool did not start; the message says why.
    """
    given: dict[str, SettingValue] = {
        "session_functions": "unsigned",
        "worker_memory_bytes": min(memory_limits().values()) // 4,
        "output_lines_per_second": _OUTPUT_LINES_PER_SECOND,
        # Only the user who started this process can connect to the pool.
        "allow_remote_stacks": True,
        **_given(settings),
    }
    if workers is not None:
        given["workers"] = workers
    pool = LocalPool("pool", "updraft-server", [], given)
    try:
        pool.join_notebook()
    except BaseException:
        pool.stop()
        raise
    return pool


def _given(settings: PoolOptions) -> dict[str, SettingValue]:
    return cast("dict[str, SettingValue]", settings)
