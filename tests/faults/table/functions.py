# SPDX-License-Identifier: Apache-2.0
"""Functions of the table's exchanges, which wait at a point that the test chooses. They are pickled by value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def well(column: Any) -> Any:
    """Return the answer of a good exchange."""
    import pyarrow as pa

    return pa.array(["well"] * len(column))


def note_and_wait(directory: str) -> None:
    """Write this worker's pid to the file `reached`, and return when a file `go` exists."""
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
    """Return a function that writes its worker's pid to `reached` when it is called, and never waits."""
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
    """Return a function whose answer is larger than the connection can accept at once."""
    where = str(directory)

    def replies(column: Any) -> Any:
        from pathlib import Path

        import pyarrow as pa

        answer = pa.array(["x" * reply_bytes] * len(column))
        Path(where, "go").touch()
        note_and_wait(where)
        return answer

    return replies
