# SPDX-License-Identifier: Apache-2.0
"""Service that runs as a child of this process, on a Unix socket that other users cannot reach.

The child's standard input is an unused pipe. The pipe closes when this process ends, even if this process is killed.
The service then shuts down gracefully (`--end-with-stdin`).
"""

import atexit
import contextlib
import difflib
import importlib.util
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from updraft.spark.jars import EXTENSIONS, jar

SettingValue = str | int | float | bool | os.PathLike[str] | Sequence[str]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_START_TIMEOUT_SECONDS = 120.0
_LOOK_SECONDS = 0.05
_DRAIN_SECONDS = 10.0
# After its drain, a service takes up to 15 seconds to end exchanges that did not finish.
_STOP_TIMEOUT_SECONDS = _DRAIN_SECONDS + 20.0
_LOG_TAIL_CHARACTERS = 20_000
# Limit for the path of a Unix socket on Linux.
_LONGEST_SOCKET_PATH_BYTES = 107
_OPTION = re.compile(r"(?<!\S)--([a-z]+(?:-[a-z]+)*)")


class _Default:
    """Default of an option in a signature, shown as three dots."""

    def __repr__(self) -> str:
        return "..."


def showing_options(options: type) -> Callable[[_Function], _Function]:
    """Show the options of `**settings` by name in the signature of a function.

    Notebooks complete the names that `inspect.signature` lists. Editors and type checkers read the TypedDict.
    """

    def show(function: _Function) -> _Function:
        signature = inspect.signature(function)
        named = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        kind = inspect.Parameter.KEYWORD_ONLY
        for name, type_ in options.__annotations__.items():
            if name not in signature.parameters:
                named.append(inspect.Parameter(name, kind, default=_Default(), annotation=type_))
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        return function

    return show


class LocalServiceError(RuntimeError):
    """Raised when a local pool or writer cannot start; the message ends with the tail of its log."""


class LocalService:
    """Running service. Use it as a context manager, or let it end with this process."""

    _option_names: Collection[str] = ()
    """Names of all settings, for the error about an unknown setting."""

    _shows_log = False
    """Whether its log goes to this process's standard output instead of a file."""

    def __init__(
        self, noun: str, distribution: str, arguments: Sequence[str], settings: Mapping[str, SettingValue]
    ) -> None:
        """Start the service and return once it is ready.

        Args:
            noun: Name of the service in messages: "pool" or "writer".
            distribution: Distribution that contains the service.
            arguments: Options of its `serve` command.
            settings: More options, with underscores: `worker_memory_bytes=...`.

        Raises:
            LocalServiceError: The service is not installed, this is not Linux, or the service did not start.
        """
        self._noun = noun
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        module = distribution.replace("-", "_")
        if sys.platform != "linux":
            raise LocalServiceError(f"a {noun} runs only on Linux: start this program in a container or a VM")
        if importlib.util.find_spec(module) is None:
            raise LocalServiceError(f"{distribution} is not installed here: pip install updraft-spark")
        self._directory = _directory(noun)
        self._socket = self._directory / "service.sock"
        self._ready_file = self._directory / "ready.json"
        self.log_file = self._directory / f"{noun}.log"
        """Log of the service; a pool's log includes the output of functions."""
        self._command = [
            *(sys.executable, "-P", "-m", module, "serve", "--end-with-stdin"),
            *("--ready-file", str(self._ready_file), *self._addresses(), *self._places()),
            *("--admin-listen", "", "--metrics-listen", "127.0.0.1:0", "--log-format", "console"),
            *("--drain-timeout-seconds", f"{_DRAIN_SECONDS:g}"),
            *arguments,
        ]
        self._settings = dict(settings)
        atexit.register(self.stop)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        """Start the service and wait until it is ready; raises LocalServiceError."""
        # Remove the ready file of the previous service, which would make the new service look ready.
        self._ready_file.unlink(missing_ok=True)
        environment = {**os.environ, "UPDRAFT_CONFIGURED_BY": f"local_{self._noun}()", **self._environment()}
        log_file = None if self._shows_log else self.log_file
        self._process = _started([*self._command, *_options(self._settings)], log_file, environment)
        self._ready = self._wait_until_ready(self._process)

    def _addresses(self) -> list[str]:
        """Return the options that set the addresses for clients."""
        return ["--listen", "", "--listen-unix", str(self._socket)]

    def _places(self) -> list[str]:
        """Return the options that set where the service keeps its files."""
        return []

    def _environment(self) -> dict[str, str]:
        """Return environment variables for the service, in addition to this process's."""
        return {}

    @property
    def endpoint(self) -> str:
        """Address of the service, in the form that the connector's settings take."""
        return f"grpc+unix://{self._socket}"

    @property
    def status_url(self) -> str:
        """URL of the service's state: a page to open in a browser for a pool, JSON for a writer.

        Raises:
            LocalServiceError: `metrics_listen` is empty, so the service has no status page.
        """
        if "metrics_listen" not in self._ready:
            raise LocalServiceError(
                f"the {self._noun} has no status page, because metrics_listen is empty: leave it out"
            )
        page = "status" if self._noun == "pool" else "status.json"
        return f"http://{self._ready['metrics_listen']}/{page}"

    @property
    def status_password(self) -> str:
        """Password for `status_url`, with any user name; empty if none is needed."""
        path = self._ready.get("metrics_token_file")
        return Path(path).read_text().strip() if path else ""

    def spark_conf(self) -> dict[str, str]:
        """Return the confs for a Spark session on this machine; the confs of a pool and a writer can be merged.

        Raises:
            RuntimeError: This process has started Spark without Updraft, and the next session would use the same JVM.
            ValueError: Updraft has no jar for the PySpark that is installed here.
            ModuleNotFoundError: The distribution `updraft-spark` is not installed.
        """
        if _has_jvm_without_updraft():
            raise RuntimeError(
                "this process has started Spark without Updraft, and the JVM outlives its sessions: restart the kernel "
                "or program, and call spark_conf() before the first session"
            )
        return {"spark.jars": str(jar()), "spark.sql.extensions": EXTENSIONS}

    @property
    def _is_owned(self) -> bool:
        """Whether this process started the service; false in a forked child."""
        return os.getpid() == self._owner

    @property
    def has_ended(self) -> bool:
        """Whether the service was stopped or has ended by itself."""
        return self._process is None or self._process.poll() is not None

    def log(self, last_characters: int | None = _LOG_TAIL_CHARACTERS) -> str:
        """Return the end of the log, in whole lines; empty once the service was stopped.

        Args:
            last_characters: Maximum length; None returns the whole log.
        """
        with contextlib.suppress(FileNotFoundError):
            text = self.log_file.read_text(errors="replace")
            if last_characters is None or len(text) <= last_characters:
                return text
            return text[-last_characters:].partition("\n")[2]
        return ""

    def stop(self) -> None:
        """Stop the service and remove its files, the log included. Running exchanges get 10 seconds to finish.

        Idempotent.
        """
        # A fork of this process inherits this object and its exit handler, but must not stop the service.
        if not self._is_owned:
            return
        self._end()
        shutil.rmtree(self._directory, ignore_errors=True)
        # If an interrupt ends this method early, Python calls it again when this process exits.
        atexit.unregister(self.stop)

    def _end(self) -> None:
        """End the process, and keep its files."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            # The service's children die with it.
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        deadline_seconds = time.monotonic() + _START_TIMEOUT_SECONDS
        while time.monotonic() < deadline_seconds:
            # The service replaces the file atomically, so it is never half written.
            with contextlib.suppress(FileNotFoundError):
                return dict(json.loads(self._ready_file.read_text()))
            if process.poll() is not None:
                log = self._unknown_options(self.log()) or in_python(self.log().strip())
                raise LocalServiceError(
                    f"the {self._noun} ended with status {process.returncode}" + (f":\n{log}" if log else "")
                )
            time.sleep(_LOOK_SECONDS)
        raise LocalServiceError(
            f"the {self._noun} was not ready within {_START_TIMEOUT_SECONDS:g} seconds:\n{self.log().strip()}"
        )

    def _unknown_options(self, log: str) -> str:
        """Return the error text about unknown settings; empty if the service did not refuse any."""
        if "error: unrecognized arguments" not in log:
            return ""
        unknown = [name for name in self._settings if name not in self._option_names]
        return "\n".join(
            f"local_{self._noun}() has no option {name}"
            + "".join(f": did you mean {close}?" for close in difflib.get_close_matches(name, self._option_names, 1))
            for name in unknown
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        ended = ", ended" if self.has_ended else ""
        return f"<{self._noun} at {self.endpoint}{ended}; log: {self.log_file}>"


def _has_jvm_without_updraft() -> bool:
    """Return whether this process has started a JVM without the connector; setting `spark.jars` would be too late."""
    # Do not import pyspark for this: a process that has not imported it has no JVM either.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    jvm = getattr(context, "_jvm", None)
    if jvm is None:
        return False
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(EXTENSIONS)
    except Exception:
        return True
    return False


def _directory(noun: str) -> Path:
    """Create a directory that only this user can enter, with a path short enough for a socket inside."""
    path = Path(tempfile.mkdtemp(prefix=f"updraft-{noun}-"))
    if len(os.fsencode(path / "service.sock")) > _LONGEST_SOCKET_PATH_BYTES:
        path.rmdir()
        path = Path(tempfile.mkdtemp(prefix=f"updraft-{noun}-", dir="/tmp"))
    return path


def _started(command: Sequence[str], log_file: Path | None, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log_file.open("ab") if log_file is not None else contextlib.nullcontext() as log:
        # Start a new session, so that interrupting a notebook cell does not end the service.
        return subprocess.Popen(  # noqa: S603 - no shell
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def in_python(text: str) -> str:
    """Replace the names of options in a message with the names of Python arguments."""
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


def _options(settings: Mapping[str, SettingValue]) -> list[str]:
    """Return settings as options: True becomes `--name`, False becomes `--no-name`."""
    options = []
    for name, value in settings.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{option}" if value else f"--no-{option}")
        else:
            options.append(f"--{option}={_text(value)}")
    return options


def _text(value: SettingValue) -> str:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return ",".join(value) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
