# SPDX-License-Identifier: Apache-2.0
"""A module of functions that somebody is writing: its files, and a pool of this machine that serves it."""

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
    """A pool that runs the functions of `module` and nothing else, and writes its log where this process writes."""

    _shows_log = True

    def __init__(self, module: str, *, listen: str, workers: int) -> None:
        """See `LocalService`; `listen` is host:port."""
        self._listen = listen
        functions = [f"--functions={module}", "--session-functions=off", f"--workers={workers}"]
        super().__init__("pool", "updraft-server", [*functions, "--log-level=warning"], {})

    def load_again(self) -> None:
        """Begin to load the functions as they are now. What is there serves calls until that is done."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR2)

    def has_loaded_again(self) -> bool:
        """Whether functions were loaded again since this was asked last."""
        before = self._ready["zygote"]
        # Its directory goes when the pool ends.
        with contextlib.suppress(FileNotFoundError):
            self._ready = json.loads(self._ready_file.read_text())
        return bool(self._ready["zygote"] != before)

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return str(self._ready["listen"])

    def _addresses(self) -> list[str]:
        return ["--listen", self._listen]


class ModuleFiles:
    """The Python files of a module or a package, and what shows that one was written."""

    def __init__(self, module: str) -> None:
        """Raises ServeError where there is no such module."""
        self._place = _place_of(module)
        self._seen = self._written()

    def look(self) -> None:
        """What there is now is not a change."""
        self._seen = self._written()

    def changes(self) -> list[str]:
        """The names of those that were written, made or removed since the last look."""
        now = self._written()
        return sorted(path.name for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))

    def _written(self) -> dict[Path, tuple[int, ...]]:
        found: dict[Path, tuple[int, ...]] = {}
        for path in self._place.rglob("*.py") if self._place.is_dir() else [self._place]:
            # An editor may be replacing it.
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                # What is moved or copied here may bring a time of its own.
                found[path] = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
        return found


def require_free(port: int) -> None:
    """Raise ServeError, with a port that is free, where something listens on this one of this machine."""
    with socket.socket() as wanted, socket.socket() as free:
        # As a server does: connections that have just ended do not hold a port.
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
