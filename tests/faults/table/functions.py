# SPDX-License-Identifier: Apache-2.0
"""Functions of the table's exchanges, which stop where a test wants them and are pickled by value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def well(column: Any) -> Any:
    """Return the answer of a good exchange."""
    import pyarrow as pa

    return pa.array(["well"] * len(column))


def note_and_wait(directory: str) -> None:
    """Leave this worker's pid in `reached`, and return once there is a file `go`."""
    import os
    import time
    from pathlib import Path

    written = Path(directory, f"pid-{os.getpid()}")
    written.write_text(str(os.getpid()))
    written.rename(Path(directory, "reached"))
    while not Path(directory, "go").exists():
        time.sleep(0.01)


def computing(directory: Path) -> Callable[[Any], Any]:
    """Return a function that waits within its first batch."""
    where = str(directory)

    def waits(column: Any) -> Any:
        note_and_wait(where)
        return well(column)

    return waits


class _Loads:
    """Object that makes the process that unpickles it wait."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __reduce__(self) -> tuple[Any, ...]:
        return note_and_wait, (self._directory,)


def loading(directory: Path) -> Callable[[Any], Any]:
    """Return a function that waits while it is unpickled."""
    slow = _Loads(str(directory))

    def loaded(column: Any) -> Any:
        assert slow is None
        return well(column)

    return loaded


def noting(directory: Path) -> Callable[[Any], Any]:
    """Return a function that leaves its pid when it is called, and never waits."""
    where = str(directory)

    def notes(column: Any) -> Any:
        import os
        from pathlib import Path

        Path(where, "go").touch()
        note_and_wait(where)
        assert os.getpid()
        return well(column)

    return notes


def replying(directory: Path, reply_bytes: int) -> Callable[[Any], Any]:
    """Return a function that answers with more than the connection takes at once."""
    where = str(directory)

    def replies(column: Any) -> Any:
        from pathlib import Path

        import pyarrow as pa

        answer = pa.array(["x" * reply_bytes] * len(column))
        Path(where, "go").touch()
        note_and_wait(where)
        return answer

    return replies
