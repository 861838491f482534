# SPDX-License-Identifier: Apache-2.0
"""Module of functions under development: its files, and a pool on this machine that serves it."""

import contextlib
import errno
import importlib.util
import json
import signal
import socket
import sys
from pathlib import Path

from updraft.spark.local_pool import LocalPool


class ServeError(Exception):
    """Raised when a module cannot be served; the message says why, and what to do."""


class ServedModule(LocalPool):
    """Pool that runs only the functions of `module` and writes its log to the streams of this process."""

    _shows_log = True

    def __init__(self, module: str, *, listen: str, workers: int) -> None:
        """Start the pool, as `LocalService` does; `listen` is host:port."""
        self._listen = listen
        functions = [f"--functions={module}", "--session-functions=off", f"--workers={workers}"]
        super().__init__("pool", "updraft-server", [*functions, "--log-level=warning"], {})

    def load_again(self) -> None:
        """Begin to load the functions again. Until they are loaded, the pool serves calls with the old functions."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR2)

    def has_loaded_again(self) -> bool:
        """Return whether the functions were loaded again since the last call of this method."""
        before = self._ready["zygote"]
        # When the pool ends, it removes the directory of this file.
        with contextlib.suppress(FileNotFoundError):
            self._ready = json.loads(self._ready_file.read_text())
        return bool(self._ready["zygote"] != before)

    @property
    def address(self) -> str:
        """Address on which the pool listens, as host:port."""
        return str(self._ready["listen"])

    def _addresses(self) -> list[str]:
        return ["--listen", self._listen]


class ModuleFiles:
    """Python files of a module or a package, and their last seen times and sizes, which reveal changes."""

    def __init__(self, module: str) -> None:
        """Find the files of a module; raises ServeError if the module does not exist."""
        self._place = _place_of(module)
        self._seen = self._written()

    def look(self) -> None:
        """Remember the files as they are now; only later changes count."""
        self._seen = self._written()

    def changes(self) -> list[str]:
        """Return the names of the files that were written, created or removed since the last check."""
        now = self._written()
        return sorted(path.name for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))

    def _written(self) -> dict[Path, tuple[int, ...]]:
        found: dict[Path, tuple[int, ...]] = {}
        for path in self._place.rglob("*.py") if self._place.is_dir() else [self._place]:
            # An editor may be replacing the file.
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                # A file that was moved or copied here may keep its old modification time.
                found[path] = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
        return found


def require_free(port: int) -> None:
    """Raise ServeError, which suggests a free port, if something listens on this port of this machine."""
    with socket.socket() as wanted, socket.socket() as free:
        # Servers set this option too, so that connections that have just ended do not block the port.
        wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            wanted.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            free.bind(("127.0.0.1", 0))
            raise ServeError(
                f"something else listens on port {port} of 127.0.0.1: serve on a free one, such as "
                f"--port {free.getsockname()[1]}"
            ) from None


def _place_of(module: str) -> Path:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.has_location or spec.origin is None:
        raise ServeError(
            f"there is no module {module} in this directory, on PYTHONPATH or installed; "
            f"`updraft new {module}` makes one"
        )
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin
