# SPDX-License-Identifier: Apache-2.0
"""A pool on this machine that serves one module of functions, for whoever is writing it."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_START_TIMEOUT_SECONDS = 120.0
_DRAIN_SECONDS = 10.0
# Beyond its drain a pool takes up to 15 seconds to end what does not drain.
_STOP_TIMEOUT_SECONDS = _DRAIN_SECONDS + 20.0
_LOOK_SECONDS = 0.05


class ServeError(Exception):
    """Raised when a module cannot be served; the message says why, and what to do."""


class ServedModule:
    """A pool with the functions of `module`, found as `python -m` finds it; a context manager that ends the pool."""

    def __init__(self, module: str, *, workers: int) -> None:
        """Raises ServeError where there is no such module, or no server to run it."""
        if importlib.util.find_spec("updraft_server") is None:
            raise ServeError("updraft-server is not installed here: install it beside updraft-cli")
        self._files = _Files(_place_of(module))
        self._directory = tempfile.TemporaryDirectory(prefix="updraft-serve-")
        self._ready_file = Path(self._directory.name, "ready.json")
        self._pool: subprocess.Popen[bytes] | None = None
        self._command = [
            *(sys.executable, "-P", "-m", "updraft_server", "serve", "--end-with-stdin"),
            *("--admin-listen", "", "--metrics-listen", "127.0.0.1:0"),
            *("--runtime-directory", str(Path(self._directory.name, "runtime"))),
            *("--ready-file", str(self._ready_file), "--drain-timeout-seconds", f"{_DRAIN_SECONDS:g}"),
            *("--workers", str(workers), "--functions", module, "--session-functions", "off"),
            *("--log-format", "console", "--log-level", "warning"),
        ]

    def start(self, listen: str) -> str:
        """Start the pool with what the files say now; returns the address where it listens. Raises ServeError."""
        self._files.look()
        self._ready_file.unlink(missing_ok=True)
        places = [os.environ.get("PYTHONPATH", ""), str(Path.cwd())]
        self._pool = subprocess.Popen(  # noqa: S603 - no shell
            [*self._command, "--listen", listen],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
            stdin=subprocess.PIPE,
            # What interrupts this command must not interrupt the pool's drain.
            start_new_session=True,
        )
        give_up_seconds = time.monotonic() + _START_TIMEOUT_SECONDS
        while time.monotonic() < give_up_seconds:
            # Written as a whole: a reader never sees half of it.
            with contextlib.suppress(FileNotFoundError):
                return str(json.loads(self._ready_file.read_text())["listen"])
            if self._pool.poll() is not None:
                raise ServeError("the pool has ended; it has said why above")
            time.sleep(_LOOK_SECONDS)
        raise ServeError(f"the pool was not ready within {_START_TIMEOUT_SECONDS:g} seconds")

    def has_ended(self) -> bool:
        """Whether the pool has ended by itself."""
        return self._pool is None or self._pool.poll() is not None

    def changes(self) -> list[str]:
        """The names of files that were written, made or removed since the pool was started."""
        return self._files.changes()

    def stop(self) -> None:
        """End the pool: what runs has 10 seconds to finish."""
        if self._pool is None:
            return
        assert self._pool.stdin is not None
        self._pool.stdin.close()
        try:
            self._pool.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._pool.kill()
            self._pool.wait()
        self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._directory.cleanup()


class _Files:
    """The Python files of a module or a package, and when each was written."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._seen: dict[Path, int] = {}

    def look(self) -> None:
        """What there is now is not a change."""
        self._seen = self._written()

    def changes(self) -> list[str]:
        now = self._written()
        return sorted(path.name for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))

    def _written(self) -> dict[Path, int]:
        found = {}
        for path in self._place.rglob("*.py") if self._place.is_dir() else [self._place]:
            # An editor may be replacing it.
            with contextlib.suppress(FileNotFoundError):
                found[path] = path.stat().st_mtime_ns
        return found


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
